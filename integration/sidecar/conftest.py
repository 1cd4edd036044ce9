"""What the tests of the sidecar share."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("sidecar_support")

from sidecar_support import FAST, Sidecar  # noqa: E402 - rewritten before


@pytest.fixture
def sidecar(tmp_path, etcd_url, prefix):
    """Starts sidecars of one group; all are killed at the end."""
    made = []

    def sidecar(name, options=FAST, **more):
        made.append(Sidecar(tmp_path, name, etcd_url, prefix, options, **more))
        return made[-1].start()

    yield sidecar
    for one in made:
        one.kill()

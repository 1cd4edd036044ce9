"""Share fixtures among the tests of the sidecar."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("sidecar_support")

from sidecar_support import FAST, Sidecar  # noqa: E402 - rewritten before


@pytest.fixture
def sidecar(tmp_path, etcd_url, prefix):
    """Start sidecars of one group, and kill all at the end."""
    made = []

    def sidecar(name, options=FAST, **more):
        made.append(Sidecar(tmp_path, name, etcd_url, prefix, options, **more))
        return made[-1].start()

    yield sidecar
    for one in made:
        one.kill()

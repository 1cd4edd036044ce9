"""What the tests of `rink run` share."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("run_support")

from run_support import Beats, Running  # noqa: E402 - rewritten before


@pytest.fixture
def beats(tmp_path):
    """The beats of all commands of a test."""
    return Beats(tmp_path / "beats")


@pytest.fixture
def runs(etcd_url, prefix):
    """Starts `rink run`; all of them have ended in the end."""
    started = []

    def runs(*line, endpoint=None, **more):
        started.append(Running(endpoint or etcd_url, prefix, *line, **more))
        return started[-1]

    yield runs
    for run in started:
        run.close()

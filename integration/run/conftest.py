"""Share fixtures among the tests of `rink run`."""

from __future__ import annotations

import contextlib
import os
import signal

import pytest
from processes import is_alive

pytest.register_assert_rewrite("run_support")

from run_support import Beats, Running  # noqa: E402 - rewritten before


@pytest.fixture
def beats(tmp_path):
    """Return the beats of all commands of a test.

    If a test has failed, some commands may still run.
    """
    made = Beats(tmp_path / "beats")
    yield made
    for pid in {beat.pid for beat in made.all() if is_alive(beat.pid)}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def runs(etcd_url, prefix):
    """Start `rink run`; all of them have ended at the end."""
    started = []

    def runs(*line, endpoint=None, **more):
        started.append(Running(endpoint or etcd_url, prefix, *line, **more))
        return started[-1]

    yield runs
    for run in started:
        run.close()

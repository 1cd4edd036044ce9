"""Ends that `rink run` tells are of the lease that the role was granted under."""

from __future__ import annotations

import contextlib
import types

import pytest

from rink.run import guard
from rink.run.supervisor import CommandSupervisor


class Role:
    """A handle that a test makes."""

    token = 7

    def __init__(self, is_held=True):
        self.is_held = is_held


class Guarded:
    """A guard that takes ends."""

    def __init__(self):
        self.until = self.first = guard.now_ms() + 60_000

    def tell(self, until):
        self.until = until


def supervisor(lease, is_alive=True):
    """Return one whose member has a lease now; its command was started under lease 1."""
    made = CommandSupervisor.__new__(CommandSupervisor)
    deadline = guard.now_ms() / 1000 + 120
    tenure = types.SimpleNamespace(is_alive=is_alive, lease=lease, deadline=deadline)
    record = types.SimpleNamespace(create_revision=5)  # the view is behind
    view = types.SimpleNamespace(members={"a": record})
    node = types.SimpleNamespace(tenure=tenure, view=view)
    engine = types.SimpleNamespace(lock=contextlib.nullcontext(), node=node)
    made._member = types.SimpleNamespace(name="a", _engine=engine)
    made._file = types.SimpleNamespace(write=lambda *_: None)
    made._lease = 1
    return made


@pytest.mark.parametrize(
    ("lease", "is_alive", "is_moved"), [(1, True, True), (2, True, False), (1, False, False)]
)
def test_end_is_moved_on_by_its_own_live_lease_only(lease, is_alive, is_moved):
    guarded = Guarded()
    supervisor(lease, is_alive)._move_end(guarded, Role(), is_lost=False)
    assert (guarded.until > guarded.first) is is_moved


def test_command_of_a_role_that_was_lost_meanwhile_is_not_started():
    assert supervisor(2)._start(Role(is_held=False)) is None

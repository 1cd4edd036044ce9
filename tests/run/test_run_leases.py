"""Test that `rink run` sends only ends of the lease of the grant."""

from __future__ import annotations

import types

import pytest

from rink.run import command_guard
from rink.run.command_run import CommandRun


class Role:
    """Hold a handle that a test makes."""

    token = 7

    def __init__(self, is_held=True):
        self.is_held = is_held


class Guarded:
    """Take ends in place of a guard."""

    def __init__(self):
        self.until = self.first = command_guard.now_ms() + 60_000

    def tell(self, until):
        self.until = until


def command_run(lease, role=None):
    """Return a run that was started under lease 1.

    Its member now has the lease of the argument, or none if this is 0.
    """
    until = command_guard.now_ms() + 120_000 if lease else 0
    host = types.SimpleNamespace(
        member=types.SimpleNamespace(lease_and_end=lambda: (lease, until)),
        file=types.SimpleNamespace(write=lambda *_: None),
        limits=None,
    )
    made = CommandRun(host, role or Role())
    made._lease = 1
    return made


@pytest.mark.parametrize(("lease", "is_moved"), [(1, True), (2, False), (0, False)])
def test_end_is_moved_on_by_its_own_live_lease_only(lease, is_moved):
    guarded = Guarded()
    command_run(lease)._move_end(guarded, is_lost=False)
    assert (guarded.until > guarded.first) is is_moved


def test_command_of_a_role_that_was_lost_meanwhile_is_not_started():
    assert command_run(2, Role(is_held=False))._start() is None

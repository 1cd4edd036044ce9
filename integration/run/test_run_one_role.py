"""Test that a `rink run` with another role than its group fails.

It does not wait for ever.
"""

from __future__ import annotations

import pytest
from run_support import wait_for

pytestmark = pytest.mark.waits


def test_other_role_in_a_held_group_fails_with_words(runs, beats):
    runs("--name", "h1", "--", *beats.command())
    beats.wait()
    other = runs("--name", "h2", "--", "true", role="other")
    assert other.ends() == 125
    assert "member 'h1' of group 'g' runs role 'r', so role 'other' would never start" in other.log
    assert "--group" in other.log
    assert "Traceback" not in other.log


def test_member_that_takes_over_another_role_ends_the_wait(runs, beats):
    """Two waiting members learn only later which role the group has."""
    holder = runs("--name", "h1", "--", *beats.command())
    beats.wait()
    standby = runs("--name", "h2", "--", *beats.command())
    wait_for(lambda: "'h1' owns it" in standby.log)
    holder.process.terminate()
    holder.ends()
    other = runs("--name", "h3", "--", "true", role="other")
    assert other.ends() == 125
    assert "member 'h2' of group 'g' runs role 'r'" in other.log


def test_wait_of_a_standby_never_speaks_of_growth(runs, beats):
    """The group stays at one rank, so no member waits for a second rank."""
    runs("--name", "h1", "--", *beats.command())
    beats.wait()
    standby = runs("--wait", "12", "--", *beats.command())
    assert standby.ends() == 75
    assert "member 'h1' owns it until it leaves, or its lease ends" in standby.log
    assert "grow" not in standby.log


def test_other_role_follows_an_owner_that_leaves(runs, beats):
    """The role is renamed host by host.

    So a wait for a member that is leaving will end.
    """
    leaver = runs("--name", "h1", "--handover-wait", "60", "--", *beats.command())
    beats.wait()
    leaver.process.terminate()
    wait_for(lambda: "waits up to 60 s for a successor" in leaver.log)
    other = runs("--name", "h2", "--", "true", role="other")
    assert other.ends() == 0
    leaver.ends()

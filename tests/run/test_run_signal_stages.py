"""Test the effect of each signal in each state."""

from __future__ import annotations

import signal

import pytest

from rink.run.signal_stages import Deed, Stages

TERM, INT = signal.SIGTERM, signal.SIGINT


def deeds(stages, *numbers):
    """Return the actions for signals that come a second apart."""
    return [stages.take(number, at, is_running=True) for at, number in enumerate(numbers)]


def test_stages_with_a_wait_leave_then_hurry_then_kill():
    assert deeds(Stages(waits=True), TERM, INT, TERM) == [Deed.LEAVE, Deed.HURRY, Deed.KILL]


def test_stages_without_a_wait_leave_then_kill():
    assert deeds(Stages(waits=False), TERM, TERM, TERM) == [Deed.LEAVE, Deed.KILL, Deed.KILL]


@pytest.mark.parametrize(
    "number", [signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH]
)
def test_stages_pass_other_signals_on_at_any_time(number):
    stages = Stages(waits=True)
    assert deeds(stages, number, TERM, number, TERM) == [
        Deed.PASS_ON,
        Deed.LEAVE,
        Deed.PASS_ON,
        Deed.HURRY,
    ]
    assert stages.last == TERM


@pytest.mark.parametrize("number", [TERM, INT, signal.SIGHUP, signal.SIGQUIT])
def test_stages_without_a_command_end(number):
    stages = Stages(waits=True)
    assert stages.take(number, 0.0, is_running=False) is Deed.END
    assert stages.last == number


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH])
def test_stages_without_a_command_ignore_what_ends_nothing(number):
    stages = Stages(waits=True)
    assert stages.take(number, 0.0, is_running=False) is Deed.NOTHING
    assert not stages.is_leaving


def test_stages_remember_the_last_signal_for_the_command():
    stages = Stages(waits=True)
    deeds(stages, TERM, INT)
    assert stages.last == INT
    assert stages.is_leaving


def test_stages_take_two_signals_at_once_for_one():
    """`timeout` sends its signal to `rink run`, and then to the whole group."""
    stages = Stages(waits=False)
    assert stages.take(TERM, 7.0, is_running=True) is Deed.LEAVE
    assert stages.take(TERM, 7.09, is_running=True) is Deed.NOTHING
    assert stages.take(TERM, 7.2, is_running=True) is Deed.KILL

"""Warnings of failures that last."""

import pytest

from rink.core import effects as do
from rink.core import events as ev
from rink.core.holds import Hold
from rink.core.outbox import REPEAT_INTERVAL_S, Outbox

REFUSED = "reading the group failed: etcd refused the login"


def said(out):
    return [effect.text for effect in out.take()]


def test_failure_that_lasts_is_logged_once_a_minute():
    out = Outbox()
    for second in range(0, 120, 2):
        out.warn_of(REFUSED, 1_000.0 + second)
    assert said(out) == [REFUSED] * 2
    out.warn_of(REFUSED, 1_000.0 + 2 * REPEAT_INTERVAL_S)
    assert said(out) == [REFUSED]


def test_other_failure_meanwhile_is_logged_and_is_the_last_error():
    out = Outbox()
    out.warn_of(REFUSED, 1.0)
    out.warn_of("asking for a lease failed: no answer", 2.0)
    out.warn_of(REFUSED, 3.0)
    assert len(said(out)) == 2
    assert out.last_error == REFUSED


def test_losses_come_first_and_the_join_before_what_else_its_step_tells():
    """Report the join before the version that came in the same step."""
    out, told = Outbox(), do.Report(do.Level.INFO, "version 1")
    lose = do.Lose(Hold("x", 1, 1, 0.0))
    for effect in (told, do.Joined(), do.RankChanged(0), lose):
        out.do(effect)
    assert out.take() == [lose, do.Joined(), told, do.RankChanged(0)]


@pytest.mark.parametrize(
    "event",
    [
        ev.ListFailed(RuntimeError("no")),
        ev.ChoreFailed("asking for the leases of other members", RuntimeError("no")),
    ],
)
def test_member_warns_of_failure_that_lasts_once_a_minute(pair, event):
    b = pair.members["b"]
    pair.tell("b", event)
    pair.sleep(20.0)
    for _ in range(30):
        pair.tell("b", event)
    assert len([text for text in b.reports if text.endswith("failed: no")]) == 1

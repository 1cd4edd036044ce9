"""The lease and the deadline that it gives (R6, R7)."""

import pytest

from rink.core.effects import DropLease, GrantLease, KeepLease, RevokeLease
from rink.core.events import LeaseGranted
from rink.core.lease import MemberLease
from rink.core.state_tables import LeaseState


@pytest.fixture
def tenure():
    tenure = MemberLease(ttl=60, margin=6.0)
    assert tenure.ask() == GrantLease(60)
    assert tenure.granted(LeaseGranted(5, 60, 100.0, "i")) == KeepLease(5, 60)
    return tenure


def test_the_deadline_counts_from_when_the_request_was_sent(tenure):
    assert tenure.deadline == 154.0
    assert tenure.is_alive
    assert not tenure.renewed(sent_at=110.0, now=130.0)
    assert tenure.deadline == 164.0


def test_a_shorter_lease_than_was_asked_for_gives_an_earlier_deadline():
    tenure = MemberLease(ttl=60, margin=6.0)
    tenure.ask()
    tenure.granted(LeaseGranted(5, 10, 100.0, "i"))
    assert tenure.deadline == 104.0
    tenure.renewed(101.0, 102.0)
    assert tenure.deadline == 105.0


@pytest.mark.parametrize(
    ("margin", "granted", "deadline"),
    [(None, 60, 54.0), (None, 200, 180.0), (None, 10, 4.0), (6.0, 200, 194.0), (0.0, 60, 60.0)],
)
def test_tenure_default_margin_follows_a_larger_granted_ttl(margin, granted, deadline):
    """A clock that is a tenth slow uses up a tenth of what etcd counts, not of what was asked."""
    tenure = MemberLease(ttl=60, margin=margin)
    tenure.ask()
    tenure.granted(LeaseGranted(5, granted, 0.0, "i"))
    assert tenure.deadline == deadline
    tenure.renewed(sent_at=10.0, now=11.0)
    assert tenure.deadline == deadline + 10.0
    assert tenure.deadline + tenure.margin == granted + 10.0


def test_an_answer_that_is_overtaken_does_not_move_the_deadline_back(tenure):
    tenure.renewed(120.0, 121.0)
    tenure.renewed(110.0, 122.0)
    assert tenure.deadline == 174.0


def test_an_outage_of_two_thirds_of_the_ttl_loses_nothing(tenure):
    tenure.renewed(sent_at=110.0, now=110.1)
    assert not tenure.passed_deadline(110.0 + 40.0 + 10.0)
    assert tenure.is_alive


def test_at_the_deadline_the_lease_is_suspect_once(tenure):
    assert not tenure.passed_deadline(153.9)
    assert tenure.passed_deadline(154.0)
    assert not tenure.passed_deadline(155.0)
    assert tenure.state is LeaseState.SUSPECT
    assert tenure.is_held
    assert tenure.is_known
    assert not tenure.is_alive


def test_a_suspect_lease_comes_back_to_life_by_a_fresh_answer_only(tenure):
    tenure.passed_deadline(160.0)
    assert not tenure.renewed(sent_at=101.0, now=160.0)
    assert tenure.state is LeaseState.SUSPECT
    assert tenure.renewed(sent_at=159.0, now=160.0)
    assert tenure.is_alive
    assert tenure.deadline == 213.0


def test_a_lease_that_etcd_has_ended_is_dropped(tenure):
    assert tenure.ended() == DropLease(5)
    assert tenure.is_none
    assert not tenure.is_known
    assert tenure.ask() == GrantLease(60)


def test_a_lease_is_given_up_by_revoking_it_until_that_is_answered(tenure):
    assert tenure.disown() == RevokeLease(5)
    assert tenure.is_revoking
    assert tenure.retry_at > 1e9
    waits = []
    for _ in range(8):
        tenure.revoke_failed(200.0, "a")
        waits.append(tenure.retry_at - 200.0)
        assert tenure.revoke() == RevokeLease(5)
    assert waits[-1] > waits[0] * 8
    tenure.revoked()
    assert tenure.is_none
    assert tenure.retry_at < 0


def test_a_lease_that_was_not_granted_is_asked_for_again_later():
    tenure = MemberLease(60, 6.0)
    tenure.ask()
    tenure.ask_failed(100.0, "a")
    assert tenure.is_none
    assert 100.0 < tenure.retry_at < 100.1

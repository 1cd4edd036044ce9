"""The lease and the deadline that it gives (R6, R7)."""

import pytest

from rink.core.effects import DropLease, GrantLease, KeepLease, RevokeLease
from rink.core.events import LeaseGranted
from rink.core.lease import MemberLease
from rink.core.state_tables import LeaseState


@pytest.fixture
def lease():
    lease = MemberLease(ttl=60, margin=6.0)
    assert lease.ask() == GrantLease(60)
    assert lease.granted(LeaseGranted(5, 60, 100.0, "i")) == KeepLease(5, 60)
    return lease


def test_deadline_counts_from_when_the_request_was_sent(lease):
    assert lease.deadline == 154.0
    assert lease.is_alive
    assert not lease.renewed(sent_at=110.0, now=130.0)
    assert lease.deadline == 164.0


def test_shorter_lease_than_was_asked_for_gives_an_earlier_deadline():
    lease = MemberLease(ttl=60, margin=6.0)
    lease.ask()
    lease.granted(LeaseGranted(5, 10, 100.0, "i"))
    assert lease.deadline == 104.0
    lease.renewed(101.0, 102.0)
    assert lease.deadline == 105.0


@pytest.mark.parametrize(
    ("margin", "granted", "deadline"),
    [(None, 60, 54.0), (None, 200, 180.0), (None, 10, 4.0), (6.0, 200, 194.0), (0.0, 60, 60.0)],
)
def test_default_margin_follows_a_larger_granted_ttl(margin, granted, deadline):
    """Cover a clock that is a tenth slow by a tenth of the granted TTL."""
    lease = MemberLease(ttl=60, margin=margin)
    lease.ask()
    lease.granted(LeaseGranted(5, granted, 0.0, "i"))
    assert lease.deadline == deadline
    lease.renewed(sent_at=10.0, now=11.0)
    assert lease.deadline == deadline + 10.0
    assert lease.deadline + lease.margin == granted + 10.0


def test_answer_that_is_overtaken_does_not_move_the_deadline_back(lease):
    lease.renewed(120.0, 121.0)
    lease.renewed(110.0, 122.0)
    assert lease.deadline == 174.0


def test_outage_of_two_thirds_of_the_ttl_loses_nothing(lease):
    lease.renewed(sent_at=110.0, now=110.1)
    assert not lease.passed_deadline(110.0 + 40.0 + 10.0)
    assert lease.is_alive


def test_at_the_deadline_the_lease_is_suspect_once(lease):
    assert not lease.passed_deadline(153.9)
    assert lease.passed_deadline(154.0)
    assert not lease.passed_deadline(155.0)
    assert lease.state is LeaseState.SUSPECT
    assert lease.is_held
    assert lease.is_known
    assert not lease.is_alive


def test_suspect_lease_comes_back_to_life_by_a_fresh_answer_only(lease):
    lease.passed_deadline(160.0)
    assert not lease.renewed(sent_at=101.0, now=160.0)
    assert lease.state is LeaseState.SUSPECT
    assert lease.renewed(sent_at=159.0, now=160.0)
    assert lease.is_alive
    assert lease.deadline == 213.0


def test_lease_that_etcd_has_ended_is_dropped(lease):
    assert lease.ended() == DropLease(5)
    assert lease.is_none
    assert not lease.is_known
    assert lease.ask() == GrantLease(60)


def test_lease_is_given_up_by_revoking_it_until_that_is_answered(lease):
    assert lease.disown() == RevokeLease(5)
    assert lease.is_revoking
    assert lease.retry_at > 1e9
    waits = []
    for _ in range(8):
        lease.request_failed(200.0, "a")
        waits.append(lease.retry_at - 200.0)
        assert lease.revoke() == RevokeLease(5)
    assert waits[-1] > waits[0] * 8
    lease.revoked()
    assert lease.is_none
    assert lease.retry_at < 0


def test_lease_that_was_not_granted_is_asked_for_again_later():
    lease = MemberLease(60, 6.0)
    lease.ask()
    lease.ask_failed(100.0, "a")
    assert lease.is_none
    assert 100.0 < lease.retry_at < 100.1

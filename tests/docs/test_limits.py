"""Test what `api.md` says of processes at their limits."""

import ctypes

import pytest

import rink

LONG_S = 20.0


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "usleep"), reason="no usleep in this libc")
def test_code_that_holds_the_gil_beyond_the_deadline_loses_its_roles(rink_etcd):
    """Code that holds the GIL past the deadline loses its roles.

    A C extension that does not release the GIL stops renewals. The clock shows the loss, not a
    flag.
    """
    hold_the_gil = ctypes.PyDLL(None).usleep  # PyDLL, other than CDLL, keeps the GIL in a call
    with (
        rink.Session(rink_etcd.client(), ttl=2, margin=1) as session,
        rink.Rink(session, "orders") as r,
    ):
        with r.await_role("leader", LONG_S) as role:
            hold_the_gil(1_200_000)
            assert not role.is_held  # by the clock, whichever thread has run since
            assert role.lost.wait(LONG_S)
        with r.await_role("leader", LONG_S) as again:
            assert again.token > role.token


def test_member_that_holds_nothing_is_healthy(rink_session):
    """A member that holds no role is healthy.

    A rollout that waits for readiness must not wait for a role, since the old process still has it.
    """
    with (
        rink.Rink(rink_session, "orders", name="old", rebalance_delay=0) as old,
        old.await_role("leader", LONG_S),
        rink.Rink(rink_session, "orders", name="new") as new,
    ):
        assert new.get_role("leader") is None
        assert (new.rank, new.status().life) == (None, "active")
        assert rink_session.is_live
        assert new.session_remaining > 0

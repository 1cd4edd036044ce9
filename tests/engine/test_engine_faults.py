"""Check a member under lost answers, cuts, dead leases and a restore.

On virtual time: the engines and their threads are real, and a minute takes milliseconds.
"""

import threading

import pytest

import rink
from rink.core import codec
from rink.core.keys import Keys
from rink.core.schemes import rank_of
from rink.core.values import Request, Wish
from rink.engine.lease_renewal import RENEWALS_PER_TTL
from rink.etcd.api import Put
from rink.testing.memory.cluster import MemoryEtcd
from rink.testing.virtual import virtual_time

KEYS = Keys.of("rink/", "g")
TTL = 9.0
MARGIN = 0.9
DELAYS = {"rebalance_delay": 0.0, "initial_delay": 0.0}


@pytest.fixture
def time():
    with virtual_time() as made:
        yield made


def join(time, name="a", **settings):
    member = rink.Rink(time.session(ttl=TTL), "g", name=name, **{**DELAYS, **settings}).join()
    time.settle()
    return member


def etcd_of(member):
    return member._session.etcd


def incarnation(member):
    return member._opened.node.writer.incarnation


def owned_by(rank, size):
    return next(f"r{i}" for i in range(999) if rank_of(f"r{i}", size) == rank)


def owned_by_ranks(rank_by_size):
    """A role that has each of these ranks, by the number of ranks."""
    names = (f"r{i}" for i in range(999))
    return next(n for n in names if all(rank_of(n, s) == r for s, r in rank_by_size.items()))


def bears(outage, **settings):
    """Cut a member off just before a renewal; return whether it lost nothing."""
    with virtual_time() as time:
        session = time.session(**settings)
        member = rink.Rink(session, "g", name="a", **DELAYS).join()
        with member.await_role("x") as role:
            time.advance(2 * session.ttl)
            least = session.ttl - session.margin - session.ttl / RENEWALS_PER_TTL
            time.advance(member.session_remaining - least - 0.001)
            session.etcd.cut()
            time.advance(outage)
            session.etcd.heal()
            time.advance(session.ttl)
            return role.is_held and not role.lost.is_set()


@pytest.mark.parametrize(("ttl", "longest"), [(10, 7.333), (20, 14.666), (60, 44.0)])
def test_outage_at_the_worst_phase_loses_nothing_for_so_long(ttl, longest):
    """docs/tuning.md subtracts a second for reconnecting, which is free here."""
    assert bears(longest - 0.01, ttl=ttl)
    assert not bears(longest + 0.01, ttl=ttl)


def test_default_ttl_bears_an_outage_of_12_s_and_a_second_to_reconnect():
    assert bears(12.0 + 1.0)


def at_record_writes(member, fault, times=999):
    """Let a fault of its etcd hit only writes of the member's own record.

    Returns what the faults give, one for each write that was hit; `del etcd.txn` ends it.
    """
    etcd, key, faults = etcd_of(member), KEYS.member(member.name), []

    def txn(compare, then, otherwise=()):
        if len(faults) < times and any(isinstance(op, Put) and op.key == key for op in then):
            faults.append(fault(etcd))
        return MemoryEtcd.txn(etcd, compare, then, otherwise)

    etcd.txn = txn
    return faults


def rejoined(time, member, before):
    """Let it take a new lease, as another incarnation."""
    time.advance(2 * TTL)
    assert incarnation(member) != before
    assert member.rank is not None
    with member.await_role("again", TTL) as role:
        return role.token


def test_cut_shorter_than_two_thirds_of_the_ttl_loses_nothing(time):
    a, b = join(time, "a"), join(time, "b")
    role = b.await_role(owned_by(1, 2), TTL)
    number, before = a.version.number, incarnation(b)
    for phase in range(12):  # wherever in its rhythm of renewals the cut begins
        time.advance(TTL + phase * TTL / 72)
        etcd_of(b).cut()
        time.advance(TTL * 2 / 3)
        etcd_of(b).heal()
        time.advance(0.1)
        assert role.is_held
        assert not role.lost.is_set()
    assert (a.version.number, incarnation(b)) == (number, before)
    assert b._session.is_live
    role.release()


def test_roles_of_a_long_cut_are_lost_before_the_lease_can_end(time):
    a, b = join(time, "a"), join(time, "b")
    role, name = b.await_role(owned_by(1, 2), TTL), owned_by(1, 2)
    before, record = incarnation(b), b._opened.node.member_lease.id
    time.advance(TTL)
    etcd_of(b).cut()
    cut_at = time.now()
    assert role.lost.wait(2 * TTL)
    lost_at = time.now()
    assert TTL * 2 / 3 < lost_at - cut_at <= TTL - MARGIN + 0.1
    assert etcd_of(a).time_to_live(record) >= 0  # it lives on for the margin
    assert not b._session.is_live
    assert b.session_remaining <= 0
    assert b.get_role(name) is None
    with pytest.raises(rink.RoleLost, match="not renewed before its deadline"):
        role.raise_if_lost()
    with a.await_role(name, 2 * TTL) as theirs:
        assert time.now() - lost_at >= MARGIN - 0.1
        assert time.now() - cut_at <= TTL + 0.1
        assert theirs.token > role.token
    role.release()
    etcd_of(b).heal()
    rejoined(time, b, before)


def test_cut_shorter_than_the_lease_keeps_the_record_and_loses_roles(time):
    a, b = join(time, "a"), join(time, "b")
    role = b.await_role(owned_by(1, 2), TTL)
    before, number = incarnation(b), a.version.number
    time.advance(TTL)
    etcd_of(b).cut()
    assert role.lost.wait(2 * TTL)
    etcd_of(b).heal()
    time.advance(1.0)
    assert incarnation(b) == before
    assert a.version.number == number
    assert b.get_role(role.name) is None  # its handle is not released
    role.release()
    with b.await_role(role.name, TTL) as again:
        assert again.token > role.token
        assert not role.is_held


def test_unreleased_roles_are_claimed_by_the_next_incarnation(time):
    """Another member owns the role by then.

    Only the draining list of the new record keeps the role from it.
    """
    b, a = join(time, "b"), join(time, "a")
    role = b.await_role(owned_by(0, 2), TTL)
    before = incarnation(b)
    time.advance(1.0)
    time.cluster.expire_lease(b._opened.node.member_lease.id)
    assert role.lost.wait(1.0)
    time.advance(2.0)
    assert incarnation(b) != before
    assert (a.rank, b.rank) == (0, 1)
    assert a.owner(role.name) == "a"
    assert next(m for m in a.members if m.name == "b").draining == (role.name,)
    with pytest.raises(rink.RoleTimeout, match="b: has not released it yet"):
        a.await_role(role.name, 20.0)
    role.release()
    with a.await_role(role.name, 1.0) as theirs:
        assert theirs.token > role.token
    assert next(m for m in a.members if m.name == "b").draining == ()


def test_lease_that_etcd_ends_early_is_noticed_at_once(time):
    a = join(time, "a")
    role, before = a.await_role("x", TTL), incarnation(a)
    time.advance(1.0)
    at = time.now()
    time.cluster.expire_lease(a._opened.node.member_lease.id)
    assert role.lost.wait(TTL)
    assert time.now() - at < 0.1
    role.release()
    assert rejoined(time, a, before) > role.token


def test_record_write_without_an_answer_grants_nothing(time):
    a, b = join(time, "a"), join(time, "b")
    name = owned_by(1, 2)
    b.await_role(name, TTL).release()
    lost = at_record_writes(a, MemoryEtcd.lose_next_answer)
    b.leave()
    time.advance(5.0)
    assert len(lost) > 2  # it was tried again, and that was not answered either
    assert a.owner(name) == "a"
    record = next(member for member in a.members if member.name == "a")
    assert [(share.rank, share.size) for share in record.shares] == [
        (0, 1)
    ]  # the first was applied
    assert a.get_role(name) is None
    with pytest.raises(rink.RoleTimeout, match="this member is still writing its record"):
        a.await_role(name, 1.0)
    del etcd_of(a).txn
    a.await_role(name, 3.0).release()


def test_record_write_that_arrives_late_overwrites_nothing(time):
    """Its retry and a later write were applied, so it is outdated."""
    a = join(time, "a")
    role = a.await_role(owned_by(1, 2), TTL)
    holds = at_record_writes(a, MemoryEtcd.hold_next_txn, times=1)
    b = join(time, "b")
    time.advance(3.0)
    assert role.lost.is_set()
    [held] = holds
    assert held.is_sent
    assert next(m for m in b.members if m.name == "a").draining == (role.name,)
    with pytest.raises(rink.RoleTimeout, match="a: has not released it yet"):
        b.await_role(role.name, 1.0)
    role.release()
    with b.await_role(role.name, TTL) as theirs:
        revision = time.cluster.store.revision
        assert not held.apply().succeeded
        time.advance(1.0)
        assert time.cluster.store.revision == revision
        assert next(m for m in b.members if m.name == "a").draining == ()
        assert theirs.is_held
        assert theirs.token > role.token
        assert a.get_role(role.name) is None
    assert a.wait_settled(TTL)


def test_proclamation_whose_answer_was_lost_is_not_made_twice(time):
    a = join(time, "a")
    b = rink.Rink(time.session(ttl=TTL), "g", name="b", rebalance_delay=5.0, initial_delay=5.0)
    b.join()
    time.advance(4.5)
    assert b.rank is None
    etcd_of(a).lose_next_answer()
    time.advance(5.0)
    assert b.rank == 1
    assert a.version.number == 2
    assert a.wait_settled(TTL)


def test_join_whose_answer_was_lost_fails_and_leaves_no_record(time):
    a = rink.Rink(time.session(ttl=TTL), "g", name="a")
    etcd_of(a).lose_next_answer()
    with pytest.raises(rink.EtcdUnavailable):
        a.join()
    time.advance(2.0)
    assert time.cluster.store.next_expiry is None
    join(time, "a")


def test_join_that_arrives_after_it_was_given_up_leaves_no_live_record(time):
    a = rink.Rink(time.session(ttl=TTL), "g", name="a")
    held = etcd_of(a).hold_next_txn()
    with pytest.raises(rink.EtcdUnavailable):
        a.join()
    time.advance(2.0)
    with pytest.raises(rink.EtcdError):
        held.apply()  # its lease is gone, so it cannot
    again = join(time, "a")
    assert again.rank == 0


def test_join_that_waits_for_its_name_survives_a_lost_answer(time):
    """R8: etcd was there, so a failure while it waits is retried."""
    old = join(time, "a")
    etcd_of(old).cut()
    new = rink.Rink(time.session(ttl=TTL), "g", name="a", join_timeout=600.0, **DELAYS)
    writes = []

    def fault(etcd):
        writes.append(time.now())
        if len(writes) == 2:  # the first finds the name taken
            etcd.lose_next_answer()

    at_record_writes(new, fault)
    new.join()
    assert len(writes) >= 3
    new.await_role("x", TTL).release()


def test_leave_without_etcd_ends_and_says_so(time, caplog):
    a = join(time, "a", leave_timeout=3.0)
    etcd_of(a).cut()
    at = time.now()
    a.leave()
    assert time.now() - at < 7.0
    assert "could not be revoked" in caplog.text


def test_leave_without_etcd_ends_with_the_lease_if_not_before(time):
    a = join(time, "a", leave_timeout=1000.0)
    etcd_of(a).cut()
    at = time.now()
    a.leave()
    assert time.now() - at <= TTL + 1.0


def test_member_whose_watch_breaks_lists_anew(time):
    a = join(time)
    a._opened._group_watch._watch._failed(rink.EtcdError("it cannot go on"))
    time.advance(1.0)
    b = join(time, "b")
    time.advance(1.0)
    assert a.size == 2
    b.leave()


def test_stop_tells_the_losses_though_the_engine_hangs(time, monkeypatch):
    """Nobody watches the deadline any more, and the lease runs out."""
    a = join(time)
    role = a.await_role("x", TTL)
    engine, lost = a._opened, role.lost
    hangs, goes_on, prefetch = threading.Event(), threading.Event(), engine.node.prefetch

    def hang(events):
        hangs.set()
        goes_on.wait()
        return prefetch(events)

    monkeypatch.setattr(engine.node, "prefetch", hang)
    engine.nudge()
    assert hangs.wait(10)
    engine.stop()
    assert lost.is_set()
    goes_on.set()
    role.release()


def test_etcd_restored_from_a_backup_ends_the_session_which_joins_anew(time):
    a = join(time, "a")
    backup = time.cluster.backup()
    role, before = a.await_role("x", TTL), incarnation(a)
    time.cluster.restore_backup(backup)
    assert role.lost.wait(TTL)
    with pytest.raises(rink.RoleLost, match=r"restored|another"):
        role.raise_if_lost()
    role.release()
    rejoined(time, a, before)


def test_log_is_followed_on_after_a_restore(time):
    backup = time.cluster.backup()
    a = join(time, "a")
    time.advance(1.0)
    join(time, "b").leave()
    time.advance(1.0)
    log = a.versions()
    last = next(log).number
    assert last > 1
    time.cluster.restore_backup(backup)
    time.advance(3 * TTL)
    assert next(log).number < last
    assert a.version.number < last


def test_tokens_rise_after_a_restore_without_an_operator(time):
    a = join(time, "a")
    backup = time.cluster.backup()
    for _ in range(10):
        a.await_role("x", TTL).release()
        etcd_of(a).grant(10)
        b = join(time, "b")
        b.leave()
    before = a.await_role("x", TTL)
    time.cluster.restore_backup(backup)
    before.release()
    time.advance(3 * TTL)
    assert time.cluster.store.revision < before.token
    with a.await_role("x", TTL) as after:
        assert after.token > before.token
    assert [cause for cause in a.version.because if "token base" in cause]
    _raise_token_base(time, 10 * before.token)
    time.advance(1.0)
    with a.await_role("y", TTL) as role:
        assert role.token > 10 * before.token


@pytest.mark.parametrize("is_empty", [True, False])
def test_history_replaced_behind_a_cut_off_member_is_held_once(time, is_empty):
    """No header shows it: same cluster id and term, higher revision."""
    a = join(time, "a")
    backup = None if is_empty else time.cluster.backup()
    b = join(time, "b")
    role = owned_by_ranks({2: 1})
    held = b.await_role(role, TTL)
    etcd_of(b).cut()
    time.cluster.replace_history(backup)
    time.settle()
    time.advance(0.5)
    assert a.status().grants_resume_in > TTL - 1.0
    assert "another history" in a.status().last_error
    while held.is_held:
        assert a.get_role(role) is None
        time.advance(0.5)
    held.release()
    time.advance(2.0)
    with a.await_role(role, 2 * TTL) as later:
        assert later.token > held.token
    assert a.status().grants_resume_in == 0.0


def test_history_replaced_ends_the_session_of_each_member_once(time, caplog):
    members = [join(time, name) for name in "abc"]
    time.cluster.replace_history()
    time.advance(3 * TTL)
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors) == 3
    assert all("another history" in record.getMessage() for record in errors)
    for member in members:
        assert member.size == 3
        with member.await_role(next(n for n in "pqrstuvwxyz" if member.owner(n) == member.name)):
            pass


def _raise_token_base(time, base):
    request = Request(Wish.TOKEN_BASE, token_base=base)
    key = KEYS.request("wish")
    etcd = time.cluster.client()
    etcd.range(key)
    etcd.txn((), (Put(key, codec.encode(request)),))


def test_watch_that_was_compacted_away_costs_nothing(time, monkeypatch):
    a, b = join(time, "a"), join(time, "b")
    stays, goes = owned_by_ranks({2: 1, 3: 1}), owned_by_ranks({2: 1, 3: 2})
    roles = b.await_role(stays, TTL), b.await_role(goes, TTL)
    before, lists = incarnation(b), []
    ranged = etcd_of(b).range
    monkeypatch.setattr(etcd_of(b), "range", lambda *args: lists.append(args) or ranged(*args))
    etcd_of(b).cut()
    c = join(time, "c")
    assert a.size == 3
    assert b.size == 2
    time.cluster.compact(time.cluster.store.revision)
    etcd_of(b).heal()
    time.advance(1.0)
    assert len(lists) == 1  # the watch could not go on: the group was read anew
    assert b.size == 3
    assert incarnation(b) == before
    assert [role.is_held for role in roles] == [True, False]
    assert [role.lost.is_set() for role in roles] == [False, True]
    for role in roles:
        role.release()
    c.await_role(goes, TTL).release()
    assert a.wait_settled(TTL)

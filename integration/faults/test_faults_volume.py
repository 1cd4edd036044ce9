"""Test many roles.

Some of a thousand are never let go, and 65,536 are lost at once.
"""

import statistics
import threading

from faults_members_support import until
from members import LONG_S
from table import Row

from rink.core.keys import Keys
from rink.engine.clock import SYSTEM
from rink.etcd.api import WatchBroken, WatchOpened
from rink.etcd.client import Client
from rink.testing.history import HistoryEvent

pytest_plugins = ["faults_members_fixtures"]

SERVERS = "1 node"
REQUEST_LIMIT_BYTES = 1_572_864
"""The largest request of etcd by default."""


# ── some are never let go ────────────────────────────────────────────────────────────────────

THOUSAND = [f"role-{number}" for number in range(1000)]
STUCK = THOUSAND[::100]
FREE = [role for role in THOUSAND if role not in STUCK]
GRACE_S = 1.0
BUSY_S = 3.5
"""Seconds that a busy machine may add. A lease would end after 5 s."""


def begin_to_hand_over(group, stuck, **settings):
    """Start a leave whose user code never lets go of `stuck`.

    Return the time of its start.
    """
    giver = group.joined("giver", roles=FREE, **settings)
    until(lambda: giver.holding == len(FREE))
    assert giver.ask("take", stuck, True)["taken"] == sorted(stuck)
    heir = group.joined("heir", rebalance_delay=60.0, **settings)
    giver.until_it_sees(heir)
    since = SYSTEM.now()
    giver.ask("begin_to_leave")
    until(lambda: heir.holding >= len(THOUSAND) - len(stuck))  # more, once a grace is over
    until(lambda: giver.holding == len(stuck))  # each member reports through its own pipe
    return giver, heir, since


def longest_gap(judgement, roles, since):
    """Return the longest time without a holder, of roles that moved once."""
    found = [gap for gap in judgement.gaps if gap.begin > since and gap.role in roles]
    assert sorted(gap.role for gap in found) == sorted(roles)
    return max(gap.seconds for gap in found)


def test_ten_roles_of_a_thousand_that_are_never_let_go_hold_up_no_other(group_of, record):
    alone, beside = [], []
    for _ in range(3):
        group = group_of(THOUSAND, 5)
        _, _, since = begin_to_hand_over(group, [], writes=False)
        alone.append(longest_gap(group.history.judge(), FREE, since))
        group.close()
        group = group_of(THOUSAND, 5)
        giver, heir, since = begin_to_hand_over(group, STUCK, writes=False)
        beside.append(longest_gap(group.history.judge(), FREE, since))
        _they_wait_for_the_giver(group, giver, heir)
        group.close()
    print("FIGURE 990 roles moved, beside 10 that stay, longest gaps in ms", in_ms(beside))
    print("FIGURE 990 roles moved, with no others,      longest gaps in ms", in_ms(alone))
    assert statistics.median(beside) < 2 * statistics.median(alone) + 0.1
    judgement = group.history.judge()
    assert judgement.problems == []
    row = Row.of("10 roles of 1,000 never let go", SERVERS, judgement, since)
    record(row)


def in_ms(seconds):
    return [round(1000 * one, 1) for one in sorted(seconds)]


def _they_wait_for_the_giver(group, giver, heir):
    """Assert that ten roles wait for the giver, and come at its release.

    Both ends name the waiting member.
    """
    status = heir.ask("status")
    assert status["waiting_for"] == dict.fromkeys(STUCK, "giver: has not released it yet")
    assert "giver: has not released it yet" in heir.ask("why_not", STUCK[0], 0.05)["because"]
    assert giver.ask("status")["draining"] == sorted(STUCK)
    released_at = SYSTEM.now()
    giver.ask("release", True)
    # Milliseconds on a quiet machine. A lease would end after 5 s.
    assert group.wait_for_holders(heir) - released_at < 4.0
    giver.wait("left the group")


def test_with_a_grace_they_move_after_it_and_the_token_is_the_guard(group_of, record):
    group = group_of(THOUSAND, 5)
    giver, heir, since = begin_to_hand_over(group, STUCK, grace=GRACE_S)
    let_go_at = [gap.begin for gap in group.history.judge().gaps if gap.begin > since]
    until(lambda: any("claims are given up" in text for _, text in giver.logged))
    at = next(at for at, text in giver.logged if "claims are given up" in text)
    tokens = {one.role: one.token for one in group.history.judge().grants if one.who == giver.who}
    for role in STUCK:  # from here on nothing but the token is in its way
        group.history.add(HistoryEvent("let go", giver.who, at, role, tokens[role]))
    held_at = group.wait_for_holders(heir)
    assert held_at - min(let_go_at) > GRACE_S / 2  # it began a moment before
    assert held_at - max(let_go_at) < GRACE_S + BUSY_S
    until(lambda: heir.ask("count")["held"] == len(THOUSAND))
    assert giver.ask("write")["accepted"] == []
    judgement = group.history.judge()
    assert judgement.problems == []
    assert judgement.refused == len(STUCK)
    bound = GRACE_S + BUSY_S
    record(Row.of("the same with a grace of 1 s", SERVERS, judgement, since, bound=bound))


# ── 65,536 at once ───────────────────────────────────────────────────────────────────────────

MANY = [f"role-{number}" for number in range(65_536)]


def test_member_with_65536_roles_hands_all_over_in_one_version(group_of, etcd_url, record):
    """A member holds 65,536 roles, and hands all over in one version."""
    group = group_of(MANY, 15)
    giver = group.joined("giver", writes=False, leave_timeout=LONG_S)
    began_at = SYSTEM.now()
    until(lambda: giver.holding == len(MANY))
    held_s = SYSTEM.now() - began_at
    print("FIGURE 65536 held after s", round(held_s, 2))
    for how in ("get_role", "await_role"):
        took = giver.ask("get_all", how)
        assert took["got"] == len(MANY)
        each, released = round(took["each_us"], 2), round(took["released_us"], 2)
        print(f"FIGURE 65536 times {how} us", each, "and release", released)
    heir = group.joined("heir", rebalance_delay=60.0, writes=False)
    giver.until_it_sees(heir)
    with Client([etcd_url]) as client:
        revision = client.range(b"k").header.revision
        since = SYSTEM.now()
        group.leave(giver)
        until(lambda: heir.holding == len(MANY) and giver.holding == 0, 60.0)
        gap = longest_gap(group.history.judge(), set(MANY), since)
        print("FIGURE 65536 handed over: longest gap s", round(gap, 2))
        written = writes_since(client, group, revision + 1)
    usage = heir.ask("usage")
    print("FIGURE of the heir: max RSS MB", usage["max_rss_kb"] // 1024, "cpu s", usage["cpu_s"])
    sizes = [len(value) for _, value in written]
    print("FIGURE etcd writes", len(written), "bytes", sum(sizes), "largest", max(sizes))
    versions = [key for key, _ in written if b"/versions/" in key]
    assert len(versions) == 1
    assert max(sizes) < REQUEST_LIMIT_BYTES / 4
    judgement = group.history.judge()
    assert judgement.problems == []
    assert judgement.moves(since) == dict.fromkeys(MANY, 1)
    bound = 5 * held_s + 1.0  # user code says a line for each, when it gains and when it lets go
    row = Row.of("65,536 roles lost at once", SERVERS, judgement, since, versions=1, bound=bound)
    record(row)
    assert row.longest_gap < row.bound


def writes_since(client, group, revision):
    """Return every value put under the group's keys since a revision.

    They are read from etcd's own history.
    """
    keys = Keys.of(group.prefix, "g")
    last = client.range(keys.root, keys.end).header.revision  # perhaps of another group's key
    written, done = [], threading.Event()

    def deliver(message):
        assert not isinstance(message, WatchBroken), message.error
        if isinstance(message, WatchOpened):
            return
        puts = [one.kv for one in message.events if not one.deleted]
        written.extend((kv.key, kv.value) for kv in puts if kv.key.startswith(keys.root))
        if message.revision >= last:
            done.set()

    watch = client.watch(b"\0", b"\0", revision, deliver)  # all keys
    assert done.wait(LONG_S)
    watch.close()
    return written

"""Test that members find out that etcd has another history (R11).

etcd loses its volume, or is restored from a copy, while members are cut off from it. Its cluster
id and raft term stay, and its revision is above all that the members know. Only its contents show
that it has another history.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import threading
import time

import pytest
from faults_etcdutl import Etcdutl
from faults_members_support import until
from wire import Wire

import rink
from rink.core.codec import encode
from rink.core.keys import Keys
from rink.core.schemes import rank_of
from rink.core.values import Request, Wish
from rink.etcd.api import Put
from rink.etcd.client import Client
from rink.inspect.read_group import read_group
from rink.testing import local_etcd

pytestmark = pytest.mark.waits

TTL_S = 4
MARGIN_S = 0.5
SLACK_S = 0.5  # of two busy cores; what this process stood still comes on top: see `Stalls`
NAMES = [f"role-{index}" for index in range(40)]
ROLES = [next(name for name in NAMES if rank_of(name, 3) == rank) for rank in range(3)]
ROLES += [next(name for name in NAMES[20:] if rank_of(name, 2) == rank) for rank in range(2)]
KEYS = Keys.of("rink/", "g")
QUICK = {"rebalance_delay": 0.0, "initial_delay": 0.2}


class Holder(threading.Thread):
    """Hold a role whenever possible, and note from when to when."""

    def __init__(self, member, role):
        super().__init__(daemon=True)
        self.member, self.role, self.held = member, role, []
        self.start()

    def run(self):
        with contextlib.suppress(rink.ClosedError):
            while True:
                with self.member.await_role(self.role) as role:
                    self.held.append([time.monotonic(), None, role.token])
                    role.lost.wait()
                    self.held[-1][1] = time.monotonic()


class FirstAnswer(threading.Thread):
    """Note when etcd first answers a session after this moment, on any call."""

    def __init__(self, session):
        super().__init__(daemon=True)
        (self._connection,) = session.etcd._transport.ring.in_order()
        self._since, self.at = time.monotonic(), None
        self.start()

    def run(self):
        while self.at is None:
            channel = self._connection._current
            if channel is not None and channel.heard_at > self._since:
                self.at = channel.heard_at
            time.sleep(0.002)


class Stalls(threading.Thread):
    """Add up how long this process did not run as it should.

    All members are in it.
    """

    EVERY_S = 0.02

    def __init__(self):
        super().__init__(daemon=True)
        self.seconds, self._is_over = 0.0, threading.Event()
        self.start()

    def run(self):
        before = time.monotonic()
        while not self._is_over.wait(self.EVERY_S):
            now = time.monotonic()
            self.seconds += max(0.0, now - before - 2 * self.EVERY_S)
            before = now

    def stop(self):
        self._is_over.set()
        self.join()


class Setting:
    """Run one etcd, and members that reach it through a wire or directly.

    An `etcdutl`, if given, restores a snapshot and bumps the revision. Otherwise the data folder is
    copied, and writes raise the revision.
    """

    def __init__(self, stack, folder, etcdutl=None):
        self.folder, self.stack, self.etcdutl = folder, stack, etcdutl
        self.node = stack.enter_context(local_etcd(fsync=False, data_dir=folder / "etcd"))
        self.wire = Wire(self.node.endpoint)
        stack.callback(self.wire.close)
        self.holders, self.members, self.cut_off = [], {}, {}

    def join(self, name, *, is_behind_wire):
        endpoint = self.wire.endpoint if is_behind_wire else self.node.endpoint
        session = rink.Session(endpoint, ttl=TTL_S, margin=MARGIN_S)
        self.stack.callback(session.close, timeout=1.0)
        if is_behind_wire:
            self.cut_off[name] = session
        member = self.members[name] = rink.Rink(session, "g", name=name, **QUICK).join()
        self.holders += [Holder(member, role) for role in ROLES]
        return member

    def client(self):
        return self.stack.enter_context(Client([self.node.endpoint]))

    def all_held(self):
        """Return whether each role is held, as far as is known."""
        held = {one.role for one in self.holders if one.held and one.held[-1][1] is None}
        return held == set(ROLES)

    def copy(self):
        if self.etcdutl:
            self.etcdutl.save(self.node.endpoint, self.folder / "snapshot")
            return
        self.node.stop()
        shutil.copytree(self.data, self.folder / "copy")
        self.node.start()

    @property
    def data(self):
        return next((self.folder / "etcd").glob("*/data"))

    def replace(self, *, is_empty, is_compacted, bump):
        """Begin another history, with a revision above all that any member knows."""
        before = self.client().range(b"k").header
        self.wire.cut()
        self.node.stop()
        data = self.data
        shutil.rmtree(data)
        if self.etcdutl:
            self.etcdutl.restore(self.folder / "snapshot", self.folder / "etcd", bump)
        elif not is_empty:
            shutil.copytree(self.folder / "copy", data)
        self.node.start()
        after = self.client().range(b"k").header
        assert after.cluster_id == before.cluster_id
        if self.etcdutl:
            assert after.revision > before.revision
        else:
            self.bring_ahead(before.revision + 20, is_compacted)

    def bring_ahead(self, revision, is_compacted):
        writer = self.client()
        while writer.txn((), (Put(b"other", b""),)).header.revision < revision:
            pass
        if is_compacted:  # as a restore with a bumped revision marks all before it
            writer.compact(revision)

    def held_until(self, name, since):
        """Return when a member lost the last role that it held at a moment.

        Return None if it held no role then.
        """
        ends = [
            until or time.monotonic()
            for one in self.holders
            if one.member is self.members[name]
            for begin, until, _ in one.held
            if begin < since and (until is None or until > since)
        ]
        return max(ends, default=None)

    def overlaps(self):
        """Return (role, seconds, since when) of each time with two holders."""
        found, now = [], time.monotonic()
        for role in ROLES:
            held = [
                (since, until or now)
                for one in self.holders
                if one.role == role
                for since, until, _ in one.held
            ]
            held.sort()
            for (_, end), (begin, _) in itertools.pairwise(held):
                if begin < end:
                    found.append((role, end - begin, begin))
        return found


def copy_between_a_version_and_its_claim(setting):
    """Let the coordinator proclaim while the claiming members hear nothing."""
    a, b = setting.members["a"], setting.members["b"]
    moves = next(role for role in ROLES if a.owner(role) == "a")
    client = setting.client()
    setting.wire.silence()
    request = encode(Request(Wish.PIN, role=moves, member="b"))
    client.txn((), (Put(KEYS.request("pin"), request),))
    until(lambda: read_group(client, KEYS).version.pins)
    setting.copy()
    setting.wire.heal()
    until(lambda: b.owner(moves) == "b" and b.can_take(moves))


@pytest.mark.parametrize(
    ("how", "is_early"), [("wiped", False), ("wiped", True), ("restored", False)]
)
def test_history_replaced_behind_cut_off_members_is_noticed(tmp_path, how, is_early, caplog):
    """Let two members be cut off, and one start fresh, early or after a TTL."""
    replace_history(tmp_path, how, is_early=is_early, heal_after_s=0.5, is_compacted=False)
    errors = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert any("etcd has another history" in text for text in errors), errors


@pytest.fixture(scope="module")
def etcdutl():
    return Etcdutl.built()


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("how", "times"), [("wiped", 25), ("restored", 13), ("bumped", 12)])
def test_history_replaced_50_times_overlaps_only_with_a_fresh_member(tmp_path, how, times, request):
    """Find no role held twice by members that the new etcd has answered.

    The wire is healed at any time. Half of the copied etcds are compacted up to their revision.
    """
    chance = random.Random(20261127)
    etcdutl = request.getfixturevalue("etcdutl") if how == "bumped" else None
    overlaps = []
    for number in range(times):
        folder = tmp_path / str(number)
        folder.mkdir()
        settings = {
            "is_early": number % 2 == 0,
            "heal_after_s": chance.uniform(0.0, 1.5 * TTL_S),
            "is_compacted": how == "restored" and number % 4 > 1,
            "bump": (1_000, 1_000_000_000)[number % 4 > 1],
        }
        overlaps.append(replace_history(folder, how, etcdutl=etcdutl, **settings))
    print(f"FIGURE {how} {times} times, overlaps with a fresh member in s:", overlaps[::2])
    assert overlaps[1::2] == [0.0] * (times // 2)


def replace_history(folder, how, *, is_early, heal_after_s, is_compacted, bump=0, etcdutl=None):
    """Replace etcd's history; return how long a role was held twice.

    Two members are connected when it happens.
    """
    with contextlib.ExitStack() as stack:
        setting = Setting(stack, folder, etcdutl)
        if how != "wiped":
            setting.join("z", is_behind_wire=False)
        setting.join("a", is_behind_wire=True)
        setting.join("b", is_behind_wire=True)
        until(lambda: setting.members["a"].size == len(setting.members) and setting.all_held())
        if how != "wiped":
            copy_between_a_version_and_its_claim(setting)
            until(setting.all_held)
        cut_at, stalls = time.monotonic(), Stalls()
        stack.callback(stalls.stop)
        setting.replace(is_empty=how == "wiped", is_compacted=is_compacted, bump=bump)
        if is_early:
            setting.join("y", is_behind_wire=False)
        time.sleep(heal_after_s)
        healed_at = time.monotonic()
        if not is_early:
            until(lambda: time.monotonic() > cut_at + TTL_S)
            setting.join("y", is_behind_wire=False)
        answers = {name: FirstAnswer(session) for name, session in setting.cut_off.items()}
        setting.wire.heal()
        y = setting.members["y"]
        until(lambda: y.size == len(setting.members) and y.wait_settled(0.0), 60.0)
        until(setting.all_held, 60.0)
        found = setting.overlaps()
        longest = round(max((seconds for _, seconds, _ in found), default=0.0), 2)
        print(f"FIGURE {how}, fresh {'early' if is_early else 'later'}: overlap {longest:.2f} s")
        print(f"FIGURE this process stood still for {stalls.seconds:.2f} s")
        assert is_early or not found
        assert longest <= TTL_S - MARGIN_S + stalls.seconds
        assert all(begin < healed_at for _, _, begin in found), "held twice by one that was told"
        for name, answer in answers.items():
            held_until = setting.held_until(name, answer.at)
            if held_until is not None:
                print(f"FIGURE held on after the first answer: {held_until - answer.at:.3f} s")
                assert held_until <= answer.at + SLACK_S + stalls.seconds
        # No member goes on beyond its deadline before the cut, however the new etcd answers.
        last_deadline = cut_at + TTL_S - MARGIN_S + SLACK_S + stalls.seconds
        assert all(begin + seconds <= last_deadline for _, seconds, begin in found)
        return longest

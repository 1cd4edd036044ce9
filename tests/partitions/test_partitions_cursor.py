"""Check a partition's transactions in every possible order."""

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rink.core.keys import Keys, OffsetKeys
from rink.errors import EtcdTooLarge, EtcdUnavailable, RinkError, StaleToken, UsageError
from rink.etcd.api import Delete, Put
from rink.partitions import stored as codec
from rink.partitions.cursor import Cursor, OffsetPlace
from rink.partitions.held_partitions import take_over
from rink.testing.memory.cluster import MemoryCluster

KEY = OffsetKeys.of("rink/", "g", "orders").partition(0)


class Cluster:
    """One partition's key, members' records, and slow transactions."""

    def __init__(self):
        self.memory = MemoryCluster(pumped=True, clock=self)
        self.etcd = self.memory.client()
        self.late = []
        self.tokens = 0

    def now(self):
        return 0.0

    def grant(self, member):
        """Grant the partition to a member in a session of its own."""
        record = Keys.of("rink/", "g").member(member)
        self.etcd.txn((), (Delete(record),))
        created = self.etcd.txn((), (Put(record, b"{}"),)).header.revision
        self.tokens += 1
        place = OffsetPlace("orders", 0, 4, KEY, "g", member, record)
        return Cursor(place, self.tokens, created)

    def grant_many(self, count):
        """Grant so many partitions to member a, in one session."""
        first, keys = self.grant("a"), OffsetKeys.of("rink/", "g", "orders")
        places = [
            attrs.evolve(first.place, partition=number, key=keys.partition(number))
            for number in range(count)
        ]
        return [Cursor(place, first.token, first.session) for place in places]

    @property
    def stored(self):
        found = self.etcd.range(KEY).kvs
        return codec.read(KEY, found[0].value) if found else None

    def has_session(self, cursor):
        found = self.etcd.range(cursor.place.record).kvs
        return bool(found) and found[0].create_revision == cursor.session

    def take(self, cursor, fate="answered"):
        take_over(self if fate != "answered" else self.etcd, [cursor])

    def commit(self, cursor, offset, fate="answered"):
        self.fate = fate
        while (asked := cursor.commit(offset)) is not None:
            result = self.txn(asked.compare, asked.then, asked.otherwise)
            if cursor.answered(offset, result):
                return

    def txn(self, *txn):
        fate, self.fate = self.fate, "answered"
        if fate == "answered":
            return self.etcd.txn(*txn)
        if fate == "lost":
            self.etcd.txn(*txn)
        else:
            self.late.append(txn)
        raise EtcdUnavailable("no answer")

    fate = "held"


FATES = st.sampled_from(["answered", "answered", "lost", "held"])
WHOSE = st.sampled_from([-1, -1, -2, 0, 1])  # of the newest grant, mostly
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("grant"), st.sampled_from("ab")),
        st.tuples(st.just("take"), WHOSE, FATES),
        st.tuples(st.just("commit"), WHOSE, st.integers(-1, 4), FATES),
        st.tuples(st.just("commit"), WHOSE, st.integers(-1, 4), FATES),
        st.tuples(st.just("arrive"), st.integers(0, 9)),
    ),
    min_size=12,  # else most have about five
    max_size=50,
)


@settings(deadline=None, max_examples=300)
@given(STEPS)
def test_no_offset_goes_back_whatever_comes_when(steps):
    """Any grants of any session, with takes and commits, some late."""
    cluster = Cluster()
    cursors = [cluster.grant("a")]
    done = 0  # the greatest offset whose commit was answered
    before = codec.Stored(0, 0, "", 4)
    for step in steps:
        if step[0] == "grant":
            cursors.append(cluster.grant(step[1]))
        elif step[0] == "arrive":
            if cluster.late:
                cluster.etcd.txn(*cluster.late.pop(step[1] % len(cluster.late)))
        else:
            cursor = cursors[step[1] % len(cursors)]
            done = max(done, act(cluster, cursor, cursors, step))
        now = cluster.stored or before
        assert now.offset >= before.offset >= 0
        assert now.token >= before.token
        assert now.offset >= done
        before = now
    last = cluster.grant("c")
    cluster.take(last)
    assert last.offset == before.offset >= done
    cluster.commit(last, last.offset + 1)
    for late in cluster.late:
        assert not cluster.etcd.txn(*late).succeeded
    assert cluster.stored == codec.Stored(last.offset, last.token, "c", 4)


def act(cluster, cursor, cursors, step):
    """Do one thing; returns what was committed by an answer."""
    is_newest = cursor is cursors[-1]
    before = cluster.stored
    try:
        if step[0] == "take" and not cursor.is_taken and cursor.over is None:
            cluster.fate = step[2]
            take_over(cluster, [cursor])
            assert cursor.is_taken or not is_newest
        elif step[0] == "commit" and cursor.is_taken:
            offset = max(0, cursor.offset + step[2])
            cluster.commit(cursor, offset, step[3])
            if cluster.stored != before:  # else it may have learned what was committed before
                assert cluster.has_session(cursor)
                assert not any(one.is_taken and one.token > cursor.token for one in cursors)
            return offset
    except StaleToken:
        assert not is_newest, "the only one whose commits count is refused"
    except (EtcdUnavailable, UsageError):
        pass
    finally:
        cluster.fate = "answered"
    return 0


def test_take_raises_the_token_and_leaves_the_offset():
    cluster = Cluster()
    one = cluster.grant("a")
    cluster.take(one)
    assert cluster.stored == codec.Stored(0, 1, "a", 4)
    cluster.commit(one, 5)
    two = cluster.grant("b")
    cluster.take(two)
    assert (two.offset, cluster.stored) == (5, codec.Stored(5, 2, "b", 4))


def test_take_always_writes_even_what_lies_there_already():
    """A late commit with the same token is then refused."""
    cluster = Cluster()
    one = cluster.grant("a")
    cluster.take(one)
    with pytest.raises(EtcdUnavailable):
        cluster.commit(one, 7, "held")
    again = attrs.evolve(one, stored=None, seen=0, is_taken=False, unanswered=[])
    cluster.take(again)
    assert not cluster.etcd.txn(*cluster.late[0]).succeeded
    assert cluster.stored.offset == 0


def test_take_in_a_session_that_is_lost_is_neither_taken_nor_over():
    cluster = Cluster()
    one = cluster.grant("a")
    cluster.grant("a")
    cluster.take(one)
    assert (one.is_taken, one.over, cluster.stored) == (False, None, None)


def test_take_of_many_goes_on_without_those_that_cannot_be_taken():
    cluster = Cluster()
    cursors = cluster.grant_many(4)
    other, own = codec.Stored(3, 1, "x", 8), codec.Stored(9, 1, "x", 4)
    for cursor, value in zip(cursors[1:], [b"?", *map(codec.encode, (other, own))], strict=True):
        cluster.etcd.txn((), (Put(cursor.place.key, value),))
    take_over(cluster.etcd, cursors)
    assert [cursor.is_taken for cursor in cursors] == [True, False, False, True]
    assert [type(cursor.over).__name__ for cursor in cursors[1:3]] == ["StateError", "ConfigError"]
    assert cursors[3].offset == 9
    assert all(isinstance(cursor.over, RinkError) for cursor in cursors[1:3])


@pytest.mark.parametrize("most", [2, 5, 6, 7])
def test_take_that_etcd_refuses_for_its_size_is_halved(most):
    """The record and its partition are two operations, and fewer never pass."""
    cluster = Cluster()
    cursors = cluster.grant_many(5)

    class Narrow:
        def txn(self, *branches):
            if max(map(len, branches)) > most:
                raise EtcdTooLarge("etcdserver: too many operations in txn request")
            return cluster.etcd.txn(*branches)

    take_over(Narrow(), cursors)
    assert all(cursor.is_taken for cursor in cursors)
    most = 1
    with pytest.raises(EtcdTooLarge):
        take_over(Narrow(), cluster.grant_many(1))


def test_what_is_written_comes_back():
    value = codec.Stored(5, 17, "日本/語", 4)
    assert codec.read(KEY, codec.encode(value)) == value
    assert b"\xe6\x97\xa5" in codec.encode(value)  # as etcdctl shows it
    assert codec.encode(value).startswith(b'{"format":1,')

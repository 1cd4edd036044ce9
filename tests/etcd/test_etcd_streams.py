"""Check watches and keepalives against answers that no real etcd gives."""

import contextlib
import logging
import queue
import re
import threading

import grpc
import pytest
from etcd_scripted import PATIENCE_S, ScriptedEtcd, Seen, header

from rink import _tuning
from rink.errors import EtcdClusterChanged, EtcdCompacted
from rink.etcd import connections, watch
from rink.etcd.answer_timeout import AnswerTimeout
from rink.etcd.proto import rinketcd_pb2 as pb
from rink.testing.process.ports import free_ports


def levels(caplog):
    """Return the levels of what the client logged."""
    return {one.levelno for one in caplog.records if one.name.startswith("rink.etcd")}


def test_rule_2_progress_answers_are_signs_of_life_only(clients):
    """A progress answer may overtake events, and does not move the resume."""

    def watch(request):
        if request.HasField("create_request"):
            yield pb.WatchResponse(header=header(9), created=True)
            kv = pb.KeyValue(key=b"k", mod_revision=5)
            yield pb.WatchResponse(header=header(9), events=[pb.Event(kv=kv)])
            # Events 6 to 9 are still on their way.
            yield pb.WatchResponse(header=header(9), watch_id=-1)
            raise RuntimeError("the stream breaks here")

    with ScriptedEtcd(watch=watch, range=lambda _: pb.RangeResponse(header=header(9))) as etcd:
        client, seen = clients(etcd.endpoint), Seen()
        client.watch(b"k", b"", 5, seen.deliver)
        etcd.wait(lambda etcd: len(etcd.seen["watch"]) >= 3)
        starts = [one.create_request.start_revision for one in etcd.seen["watch"]]
        client.close()
    assert starts[:3] == [5, 5, 5]
    assert seen.revisions == [5]


def test_watch_says_which_cluster_it_lost(clients, monkeypatch):
    """A node of another cluster at the same endpoint ends every watch."""
    monkeypatch.setattr("rink.etcd.watch.PROBE_INTERVAL_S", 0.5)
    cluster_id = [1]

    def watch(request):
        if request.HasField("create_request"):
            yield pb.WatchResponse(header=header(), created=True)
        else:
            yield pb.WatchResponse(header=header(cluster_id=cluster_id[0]), watch_id=-1)

    def ranged(_):
        return pb.RangeResponse(header=header(cluster_id=cluster_id[0]))

    with ScriptedEtcd(watch=watch, range=ranged) as etcd:
        client, seen, other = clients(etcd.endpoint), Seen(), Seen()
        watches = [
            client.watch(b"k", b"", 1, seen.deliver),
            client.watch(b"l", b"", 1, other.deliver),
        ]
        assert all(watch.wait_open(PATIENCE_S) for watch in watches)
        cluster_id[0] = 2
        assert isinstance(seen.wait_broken(), EtcdClusterChanged)
        assert isinstance(other.wait_broken(), EtcdClusterChanged)
        # What begins afterwards speaks with the cluster as it now is.
        assert client.range(b"k").header.cluster_id == 2
        client.close()


def test_watch_answer_without_cluster_id_breaks_the_watch_in_words(clients):
    """A grpc-proxy answers so if a second watch shares a stream."""

    def watch(_):
        yield pb.WatchResponse(header=header(cluster_id=0), created=True)

    with ScriptedEtcd(watch=watch) as etcd:
        client, seen = clients(etcd.endpoint), Seen()
        client.watch(b"k", b"", 1, seen.deliver)
        assert "carry no cluster id" in str(seen.wait_broken())
        assert not isinstance(seen.broken, EtcdClusterChanged)
        client.close()


def test_renewal_answer_without_cluster_id_is_logged_not_delivered(clients, caplog):
    def keepalive(request):
        yield pb.LeaseKeepAliveResponse(header=header(cluster_id=0), ID=request.ID, TTL=9)

    with caplog.at_level(logging.DEBUG), ScriptedEtcd(keepalive=keepalive) as etcd:
        client, seen = clients(etcd.endpoint), Seen()
        client.keepalives(seen.deliver).send(7)
        etcd.wait(lambda etcd: len(etcd.seen["range"]) >= 2)  # the stream was opened again
        client.close()
    assert seen.items == []
    assert "leases cannot be renewed: answers of" in caplog.text
    assert levels(caplog) == {logging.DEBUG}


@pytest.mark.parametrize(("before", "after"), [(7, 3), (5, 6)])
def test_restored_backup_breaks_the_watch(clients, before, after):
    """The cluster id is the same, and the revision is older than before."""
    revision = [before]

    def watch(request):
        if request.HasField("create_request"):
            yield pb.WatchResponse(header=header(7), created=True)
            kv = pb.KeyValue(key=b"k", mod_revision=7)
            yield pb.WatchResponse(header=header(7), events=[pb.Event(kv=kv)])
            revision[0] = after
            raise RuntimeError("the restore")

    def ranged(_):
        return pb.RangeResponse(header=header(revision[0]))

    with ScriptedEtcd(watch=watch, range=ranged) as etcd:
        client, seen = clients(etcd.endpoint), Seen()
        client.watch(b"k", b"", 7, seen.deliver)
        assert isinstance(seen.wait_broken(), EtcdClusterChanged)
        assert "backup" in str(seen.broken)
        client.close()


def test_watch_of_what_was_compacted_breaks(clients):
    """The missed changes cannot be delivered, and that is reported."""

    def watch(request):
        yield pb.WatchResponse(header=header(9), canceled=True, compact_revision=8)

    with ScriptedEtcd(watch=watch, range=lambda _: pb.RangeResponse(header=header(9))) as etcd:
        client, seen = clients(etcd.endpoint), Seen()
        client.watch(b"k", b"", 5, seen.deliver)
        assert isinstance(seen.wait_broken(), EtcdCompacted)
        client.close()


def test_split_revision_breaks_the_watch(clients):
    """This was never seen. It would deliver half a revision as a whole one."""

    def watch(request):
        if request.HasField("create_request"):
            yield pb.WatchResponse(header=header(5), created=True)
            for key in (b"k", b"l"):
                kv = pb.KeyValue(key=key, mod_revision=5)
                yield pb.WatchResponse(header=header(5), events=[pb.Event(kv=kv)])

    ranged = pb.RangeResponse(header=header(5))
    with ScriptedEtcd(watch=watch, range=lambda _: ranged) as etcd:
        client, seen = clients(etcd.endpoint), Seen()
        client.watch(b"k", b"m", 5, seen.deliver)
        assert "split revision 5" in str(seen.wait_broken())
        client.close()


def event(revision, key=b"k", value=b"v", lease=7, deleted=False):
    kv = pb.KeyValue(key=key, mod_revision=revision, value=value, lease=lease)
    return pb.Event(kv=kv, type=pb.Event.DELETE if deleted else pb.Event.PUT)


@contextlib.contextmanager
def reopened(clients, *again):
    """Reopen a watch after revision 5, and deliver `again` on it."""
    calls = []

    def watch(request):
        if not request.HasField("create_request"):
            return
        calls.append(request.create_request.start_revision)
        yield pb.WatchResponse(header=header(9), created=True)
        if len(calls) == 1:
            yield pb.WatchResponse(header=header(9), events=[event(4), event(5), event(5, b"l")])
            raise RuntimeError("the stream breaks here")
        if again:
            yield pb.WatchResponse(header=header(9), events=again)

    ranged = pb.RangeResponse(header=header(9))
    with ScriptedEtcd(watch=watch, range=lambda _: ranged) as etcd:
        client, seen = clients(etcd.endpoint), Seen()
        client.watch(b"k", b"m", 0, seen.deliver)
        yield seen, calls
        client.close()


def test_watch_whose_last_events_come_again_goes_on_behind_them(clients):
    """The events of the last revision prove it; older ones may come again."""
    again = (event(4), event(5), event(5, b"l"), event(6))
    with reopened(clients, *again) as (seen, calls):
        assert [one.kv.mod_revision for one in seen.wait_events(4)] == [4, 5, 5, 6]
        assert calls == [0, 5]
        assert seen.openings == 1


@pytest.mark.parametrize(
    "again",
    [
        (event(5), event(5, b"l", lease=8)),
        (event(5), event(5, b"l", value=b"w")),
        (event(5), event(5, b"l", deleted=True)),
        (event(5), event(5, b"kk")),
        (event(5),),
        (event(5), event(5, b"l"), event(5, b"ll")),
        (),
    ],
    ids=["lease", "value", "kind", "key", "one less", "one more", "none"],
)
def test_watch_whose_last_events_differ_says_that_it_opens_anew(clients, again):
    """In another history the watch opens anew, and delivers its events."""
    with reopened(clients, *again, event(7)) as (seen, calls):
        seen.wait(lambda seen: seen.events and seen.revisions[-1] == 7)
        assert calls == [0, 5]
        assert seen.openings == 2


def test_watch_whose_last_events_do_not_come_opens_anew(clients, monkeypatch, caplog):
    """Another history may have no changes of the range that would show it."""
    monkeypatch.setattr(watch, "_PROOF_TIMEOUT_S", 0.1)
    with caplog.at_level(logging.DEBUG, "rink.etcd"), reopened(clients) as (seen, calls):
        seen.wait(lambda seen: seen.openings == 2)
        assert calls == [0, 5, 0]
    assert "etcd did not send revision 5 again, so the range is listed anew" in caplog.text
    assert levels(caplog) == {logging.DEBUG}


@pytest.mark.parametrize(
    ("last", "listed", "starts"),
    [
        ([event(5)], 4, [0, 5]),
        ([event(5)], 5, [0, 0]),
        ([event(5)], None, [0, 0]),
        ([event(5, deleted=True), event(5, b"l")], 4, [0, 5]),
        ([event(5, deleted=True)], 4, [0, 0]),
    ],
)
def test_watch_resumes_at_a_put_behind_the_list_or_opens_anew(clients, last, listed, starts):
    calls, is_listed = [], threading.Event()

    def follow(request):
        calls.append(request.create_request.start_revision)
        yield pb.WatchResponse(header=header(9), created=True)
        if len(calls) == 1:
            yield pb.WatchResponse(header=header(9), events=last)
            is_listed.wait(PATIENCE_S)
            raise RuntimeError("the stream breaks here")

    ranged = pb.RangeResponse(header=header(9))
    with ScriptedEtcd(watch=follow, range=lambda _: ranged) as etcd:
        client, seen = clients(etcd.endpoint), Seen()
        running = client.watch(b"k", b"m", 0, seen.deliver)
        seen.wait_events(len(last))
        running.note_list(listed)
        is_listed.set()
        etcd.wait(lambda etcd: len(etcd.seen["watch"]) == 2)
        assert calls == starts
        client.close()


def test_watch_that_is_compacted_behind_opens_anew(clients):
    calls = []

    def compacted(request):
        calls.append(request.create_request.start_revision)
        yield pb.WatchResponse(header=header(9), created=True)
        if len(calls) == 1:
            yield pb.WatchResponse(header=header(9), events=[event(5)])
            raise RuntimeError("the stream breaks here")
        if len(calls) == 2:
            yield pb.WatchResponse(header=header(9), canceled=True, compact_revision=8)

    ranged = pb.RangeResponse(header=header(9))
    with ScriptedEtcd(watch=compacted, range=lambda _: ranged) as etcd:
        client, seen = clients(etcd.endpoint), Seen()
        client.watch(b"k", b"", 0, seen.deliver)
        seen.wait(lambda seen: seen.openings == 2)
        client.close()
    assert calls == [0, 5, 0]
    assert seen.broken is None


def renewed(*requests):
    """The answers to keepalives, in the order of these."""
    return [pb.LeaseKeepAliveResponse(header=header(), ID=one.ID, TTL=9) for one in requests]


def test_late_answer_belongs_to_its_own_request(clients):
    """The k-th answer is the k-th request's, however late it comes."""
    came, now = [], [100.0]

    def keepalive(request):
        came.append(request)
        yield from renewed(*came) if len(came) == 3 else ()

    with ScriptedEtcd(keepalive=keepalive) as etcd:
        client, seen = clients(etcd.endpoint, clock=lambda: now[0]), Seen()
        stream = client.keepalives(seen.deliver)
        for n in range(3):
            now[0] = 100.0 + n
            stream.send(7)
            # Each is on the stream, so none takes an earlier one's place.
            etcd.wait(lambda etcd, n=n: len(etcd.seen["keepalive"]) == 1 + n)
        seen.wait(lambda s: len(s.items) == 3)
        assert [one.sent_at for one in seen.items] == [100.0, 101.0, 102.0]
        client.close()


def test_unanswered_request_is_sent_again_with_its_first_time(clients):
    """The server may have renewed the lease at the first request only."""
    now, broke = [100.0], []

    def keepalive(request):
        if not broke:
            broke.append(request)
            now[0] = 105.0
            raise RuntimeError("the stream breaks here")
        yield from renewed(request)

    with ScriptedEtcd(keepalive=keepalive) as etcd:
        client, seen = clients(etcd.endpoint, clock=lambda: now[0]), Seen()
        client.keepalives(seen.deliver).send(7)
        seen.wait(lambda s: s.items)
        assert [(one.sent_at, one.call) for one in seen.items] == [(100.0, 2)]
        client.close()


def test_silence_is_borne_for_a_small_part_of_the_ttl_only(clients):
    """Two servers in a row may be frozen: the third still renews the lease.

    (A follower that forwards to a frozen leader is silent too, and the leader may be the next.)
    """
    ttl = 3
    borne = []

    def answers_once(request):
        if len(first.seen["keepalive"]) > 1:
            return silent(request)
        return renewed(request)

    def silent(_):
        borne.append(stream._patience.seconds)
        return []

    def renewed(request):
        return [pb.LeaseKeepAliveResponse(header=header(), ID=request.ID, TTL=ttl)]

    with (
        ScriptedEtcd(keepalive=answers_once) as first,
        ScriptedEtcd(keepalive=silent) as second,
        ScriptedEtcd(keepalive=renewed) as third,
    ):
        client, seen = clients(first.endpoint, second.endpoint, third.endpoint), Seen()
        stream = client.keepalives(seen.deliver)
        stream.send(7)
        seen.wait(lambda s: s.items)
        stream.send(7)
        seen.wait(lambda s: len(s.items) == 2)
        assert second.seen["keepalive"]
        assert max(borne) <= ttl / 3  # two of them leave time for the third
        client.close()


def test_trouble_of_a_stream_names_each_endpoint_until_one_answers(clients):
    """One endpoint is silent at first, and nobody listens on the other one."""
    troubles = []

    def answers_the_second(request):
        troubles.append(stream.trouble)
        if len(troubles) == 2:
            yield pb.LeaseKeepAliveResponse(header=header(), ID=request.ID, TTL=3)

    with ScriptedEtcd(keepalive=answers_the_second) as etcd:
        nobody = f"http://127.0.0.1:{free_ports(1)[0]}"
        client, seen = clients(etcd.endpoint, nobody), Seen()
        stream = client.keepalives(seen.deliver)
        stream.send(7)
        seen.wait(lambda s: s.items)
        assert troubles[0] == ""
        silent, refused = troubles[1].split("; ")
        assert silent == f"{etcd.endpoint}: the server is silent"
        assert refused.startswith(f"{nobody}: connection refused by 127.0.0.1:")
        client.close()
        assert stream.trouble == ""


def test_stream_that_reconnects_logs_failure_and_success_for_debugging(clients, caplog):
    """The first endpoint breaks the stream, and the second is silent at first."""
    came = []

    def breaks_then_is_silent_then_answers(request):
        came.append(request)
        if len(came) == 1:
            raise RuntimeError("the stream breaks here")
        yield from renewed(request) if len(came) > 2 else ()

    with (
        caplog.at_level(logging.DEBUG),
        ScriptedEtcd(keepalive=breaks_then_is_silent_then_answers) as first,
        ScriptedEtcd(keepalive=breaks_then_is_silent_then_answers) as second,
    ):
        client, seen = clients(first.endpoint, second.endpoint), Seen()
        stream = client.keepalives(seen.deliver)
        stream.send(7)
        seen.wait(lambda s: s.items)
        stream.send(7)
        seen.wait(lambda s: len(s.items) == 2)
        client.close()
    told = [one.getMessage() for one in caplog.records if one.name == "rink.etcd.bidi_call"]
    assert [text.partition(": ")[0] for text in told] == ["rink-etcd-keepalive"] * 4
    broke, silent, again, connected = (text.partition(": ")[2] for text in told)
    assert broke.startswith(f"{first.endpoint}: ")
    assert broke.endswith("; retrying")
    assert silent == "the server is silent"
    assert again == f"{second.endpoint}: the server is silent; retrying"
    assert re.fullmatch(rf"connected again to {first.endpoint} after \d\.\d s", connected)
    changes = [one.getMessage() for one in caplog.records if one.name == "rink.etcd.connections"]
    assert f"etcd {first.endpoint} failed, so {second.endpoint} is tried first now" in changes
    assert levels(caplog) == {logging.DEBUG}


def test_stream_that_never_failed_logs_no_reconnect(clients, caplog):
    with caplog.at_level(logging.DEBUG), ScriptedEtcd(keepalive=renewed) as etcd:
        client, seen = clients(etcd.endpoint), Seen()
        client.keepalives(seen.deliver).send(7)
        seen.wait(lambda s: s.items)
        client.close()
    assert levels(caplog) == set()


def test_trouble_of_a_stream_names_an_endpoint_that_refuses_once(clients):
    asked = queue.Queue()

    def refuses(request):
        asked.put(request)
        return grpc.StatusCode.UNAUTHENTICATED, "etcdserver: authentication failed"

    with ScriptedEtcd(range=refuses) as etcd:
        client = clients(etcd.endpoint)
        stream = client.keepalives(Seen().deliver)
        for _ in range(2):
            asked.get(timeout=PATIENCE_S)
        assert stream.trouble.startswith(f"etcd at {etcd.endpoint} refused a linearizable read")
        assert stream.trouble.count(etcd.endpoint) == 1
        client.close()


def test_silence_is_borne_for_longer_from_try_to_try(clients, monkeypatch):
    """An etcd that is slow, and not frozen, gets the time it needs."""
    borne = [0.25]

    def was_in_vain(patience):
        in_vain(patience)
        borne.append(patience.seconds)

    def answers_the_fourth(request):
        yield from renewed(request) if len(borne) >= 4 else ()

    in_vain = AnswerTimeout.was_in_vain
    monkeypatch.setattr(AnswerTimeout, "was_in_vain", was_in_vain)
    with ScriptedEtcd(keepalive=answers_the_fourth) as etcd:
        client, seen = clients(etcd.endpoint), Seen()
        stream = client.keepalives(seen.deliver)
        stream._patience.seconds = borne[0]
        stream.send(7)
        seen.wait(lambda s: s.items)
        assert borne[:4] == [0.25, 0.5, 1.0, 2.0]
        client.close()


def test_patience_is_twice_what_the_last_answer_took():
    """A process that hardly runs must not give up just before each answer."""
    patience = AnswerTimeout(1.0, 10.0)
    assert patience.seconds == 1
    for took, borne in ((0.1, 1), (3, 6), (7, 10), (0.1, 1)):
        patience.answered(took)
        assert patience.seconds == borne
    for borne in (2, 4, 8, 10, 10):
        patience.was_in_vain()
        assert patience.seconds == borne
    patience.bound(0.5, 3.0)
    assert patience.seconds == 10
    patience.answered(0.1)
    assert patience.seconds == 0.5


def test_longer_ttl_bears_longer_silences(clients):
    """A TTL of 60 s allows more than 2 s; a TTL of 3 s allows less."""

    def keepalive(request):
        yield pb.LeaseKeepAliveResponse(header=header(), ID=request.ID, TTL=request.ID)

    for ttl, longest in ((60, 10.0), (9, 2.0), (3, 1.0)):
        with ScriptedEtcd(keepalive=keepalive) as etcd:
            client, seen = clients(etcd.endpoint), Seen()
            stream = client.keepalives(seen.deliver)
            stream.send(ttl)
            seen.wait(lambda s: s.items)
            for _ in range(6):
                stream._patience.was_in_vain()
            assert stream._patience.seconds == longest
            client.close()


def test_answer_of_a_past_raft_term_does_not_count(clients):
    """A former leader that thaws renews in its own books only."""
    terms = [5, 4, 5]

    def keepalive(request):
        yield pb.LeaseKeepAliveResponse(header=header(raft_term=terms.pop(0)), ID=request.ID, TTL=9)

    def ranged(_):
        return pb.RangeResponse(header=header(raft_term=5))

    with ScriptedEtcd(keepalive=keepalive, range=ranged) as etcd:
        client, seen = clients(etcd.endpoint), Seen()
        stream = client.keepalives(seen.deliver)
        stream.send(1)
        seen.wait(lambda s: len(s.items) == 1)
        stream.send(2)
        # Answered from term 4: not told. The stream is opened again, and asks again.
        seen.wait(lambda s: len(s.items) == 2)
        assert [one.lease for one in seen.items] == [1, 2]
        assert not terms
        client.close()


def test_ttl_0_is_asked_for_twice(clients, caplog):
    """A leader that lags behind answers 0 for a live lease: no loss."""

    def keepalive(request):
        yield pb.LeaseKeepAliveResponse(header=header(), ID=request.ID, TTL=0)

    def time_to_live(request):
        ttl = 8 if request.ID == 1 else -1
        return pb.LeaseTimeToLiveResponse(header=header(), ID=request.ID, TTL=ttl)

    with ScriptedEtcd(keepalive=keepalive, time_to_live=time_to_live) as etcd:
        client, seen = clients(etcd.endpoint), Seen()
        stream = client.keepalives(seen.deliver)
        with caplog.at_level(logging.WARNING):
            stream.send(1)
            stream.send(2)
            seen.wait(lambda s: s.items)
        assert [(one.lease, one.ttl) for one in seen.items] == [(2, 0)]
        assert "but it still exists" in caplog.text
        client.close()


def test_ttl_0_that_cannot_be_confirmed_is_logged_for_debugging(clients, caplog):
    """The engine warns if the lease is not renewed for long."""

    def keepalive(request):
        yield pb.LeaseKeepAliveResponse(header=header(), ID=request.ID, TTL=2 - request.ID)

    def time_to_live(_):
        return grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: scripted"

    with (
        caplog.at_level(logging.DEBUG),
        ScriptedEtcd(keepalive=keepalive, time_to_live=time_to_live) as etcd,
    ):
        client, seen = clients(etcd.endpoint), Seen()
        stream = client.keepalives(seen.deliver)
        stream.send(2)
        stream.send(1)
        seen.wait(lambda s: s.items)
        client.close()
    assert [one.lease for one in seen.items] == [1]
    assert "lease 2: etcd reported that the lease has ended, but did not confirm: " in caplog.text
    assert levels(caplog) == {logging.DEBUG}


def test_who_waits_for_an_answer_is_not_woken_by_grpc_ten_times_a_second(clients, monkeypatch):
    """Otherwise an idle member needs twice the CPU; gRPC may undo this."""
    waited: queue.SimpleQueue[float] = queue.SimpleQueue()
    wait = threading.Condition.wait

    def noted(self, timeout=None):
        if isinstance(self, _tuning._Unhurried):
            waited.put(timeout)
        return wait(self, timeout)

    monkeypatch.setattr(threading.Condition, "wait", noted)
    with ScriptedEtcd(watch=lambda _: [pb.WatchResponse(header=header(), created=True)]) as etcd:
        client = clients(etcd.endpoint)
        client.watch(b"k", b"", 1, lambda _: None)
        assert waited.get(timeout=PATIENCE_S) == _tuning.MIN_READER_WAIT_S
        client.close()


def test_watch_that_is_closed_leaves_its_channel_to_others(clients):
    with ScriptedEtcd(watch=lambda _: [pb.WatchResponse(header=header(), created=True)]) as etcd:
        client = clients(etcd.endpoint)
        watch = client.watch(b"k", b"", 1, lambda _: None)
        assert watch.wait_open(PATIENCE_S)
        connection = client._transport.ring.first
        channel = connection._current
        channel.made_at -= 2 * connections.MIN_CHANNEL_AGE_S
        watch.close()
        watch.join(PATIENCE_S)
        assert connection._current is channel
        client.close()

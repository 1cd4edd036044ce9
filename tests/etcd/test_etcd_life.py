"""Check signs of life: an answer on a channel counts for all its streams."""

import time

import grpc
import pytest
from etcd_scripted import PATIENCE_S, ScriptedEtcd, Seen, header

from rink.etcd.answer_timeout import ANSWER_TIMEOUT_S, AnswerTimeout
from rink.etcd.bidi_call import MIN_TICK_INTERVAL_S, Streams
from rink.etcd.proto import rinketcd_pb2 as pb
from rink.etcd.watch import PROBE_INTERVAL_S

TTL_S = 60


ALL = {"watch", "keepalive", "range"}


class Script:
    """Answers to each kind of call; `is_silent` names those that get none."""

    def __init__(self):
        self.is_silent = set()

    def range(self, _):
        is_silent = "range" in self.is_silent
        return grpc.StatusCode.UNAVAILABLE if is_silent else pb.RangeResponse(header=header())

    def watch(self, request):
        if request.HasField("create_request"):
            yield pb.WatchResponse(header=header(), created=True)
        elif "watch" not in self.is_silent:
            yield pb.WatchResponse(header=header(), watch_id=-1)

    def keepalive(self, request):
        if "keepalive" not in self.is_silent:
            ttl = TTL_S if request.ID else 0
            yield pb.LeaseKeepAliveResponse(header=header(), ID=request.ID, TTL=ttl)


def wait_reading(stream):
    """Wait until a stream reads, since a delivery is not silence."""
    while stream._heard_at is None:
        pass


class Both:
    """A client with a watch and a keepalive stream, both on one channel."""

    def __init__(self, etcd, client, script):
        self.etcd, self.client, self.script, self.renewed = etcd, client, script, Seen()
        self.watch = client.watch(b"k", b"", 1, lambda _: None)
        assert self.watch.wait_open(PATIENCE_S)
        self.keepalives = client.keepalives(self.renewed.deliver)
        self.renew()
        self.channel = client._transport.ring.first._current

    def renew(self):
        count = len(self.renewed.items)
        self.keepalives.send(7)
        self.renewed.wait(lambda seen: len(seen.items) > count)

    def rest(self, seconds):
        """Let the last answer be so much older."""
        wait_reading(self.watch)
        self.channel.heard_at -= seconds
        self.watch._heard_at -= seconds

    @property
    def asked(self):
        """Return how often the watch asked for a sign of life."""
        return self.client.calls.get("progress", 0)

    def tick(self, stream, later):
        """Look at a stream so many seconds after the last answer."""
        wait_reading(stream)
        return stream.tick(self.channel.heard_at + later)

    def silence(self):
        """Let the watch ask, and wait in vain."""
        wait_reading(self.watch)
        at = self.channel.heard_at + PROBE_INTERVAL_S + 0.1
        self.watch.tick(at)
        assert self.asked == 1
        self.watch.tick(at + ANSWER_TIMEOUT_S - 0.1)
        assert self.is_open(self.watch)
        assert self.watch.tick(at + ANSWER_TIMEOUT_S + 0.1) == 0.0

    def is_open(self, stream):
        return stream._channel is self.channel


@pytest.fixture(autouse=True)
def no_ticker(monkeypatch):
    """Leave it to the test to look at the streams."""
    monkeypatch.setattr(Streams, "_tick", lambda _: None)


@pytest.fixture
def both(clients):
    script = Script()
    with ScriptedEtcd(watch=script.watch, keepalive=script.keepalive, range=script.range) as etcd:
        client = clients(etcd.endpoint)
        yield Both(etcd, client, script)
        client.close()


def test_watch_asks_after_10_s_without_any_answer_on_its_channel(both):
    both.tick(both.watch, 9.9)
    assert both.asked == 0
    for answered in (both.renew, lambda: both.client.range(b"k")):
        both.rest(5.0)
        answered()
        both.tick(both.watch, 9.9)
        assert both.asked == 0
    both.tick(both.watch, 10.5)
    assert both.asked == 1
    both.etcd.wait(lambda etcd: len(etcd.seen["watch"]) == 2)


def test_watch_that_is_alone_leaves_a_frozen_server_within_12_s():
    """Count with a ticker that is late by its shortest pause, twice."""
    assert PROBE_INTERVAL_S > 10.0
    assert PROBE_INTERVAL_S + ANSWER_TIMEOUT_S + 2 * MIN_TICK_INTERVAL_S < 12.0


def assert_left_in_time(both, stream, method, asked_at):
    """Check that a stream waits for an answer exactly as long as it should."""
    stream.tick(asked_at + ANSWER_TIMEOUT_S - 0.1)
    assert both.is_open(stream)
    assert stream.tick(asked_at + ANSWER_TIMEOUT_S + 0.1) == 0.0
    both.script.is_silent = set()
    both.etcd.wait(lambda etcd: len(etcd.metadata[method]) == 2)


def test_keepalive_that_is_unanswered_has_the_watch_asked_at_once(both):
    both.script.is_silent = ALL
    both.keepalives.send(7)
    both.tick(both.watch, 1.0)
    assert both.asked == 0
    assert both.tick(both.keepalives, TTL_S / 12 + 0.5) == 0.0
    wait_reading(both.watch)
    asked_at = time.monotonic()
    both.watch.tick(asked_at)
    assert both.asked == 1
    assert_left_in_time(both, both.watch, "watch", asked_at)


def test_watch_that_is_unanswered_has_the_keepalives_asked_at_once(both):
    """Ask about no lease: only the lessor renews one, while its engine lives."""
    both.script.is_silent = ALL
    both.silence()
    asked_at = time.monotonic()
    both.keepalives.tick(asked_at)
    both.etcd.wait(lambda etcd: [one.ID for one in etcd.seen["keepalive"]] == [7, 0])
    assert_left_in_time(both, both.keepalives, "keepalive", asked_at)


def test_keepalives_that_answer_a_doubt_stay_and_tell_nothing(both):
    both.script.is_silent = {"watch", "range"}
    heard_at = both.channel.heard_at
    both.silence()
    both.keepalives.tick(time.monotonic())
    while both.channel.heard_at == heard_at:
        pass
    wait_reading(both.keepalives)
    both.keepalives.tick(time.monotonic() + ANSWER_TIMEOUT_S + 0.1)
    assert both.is_open(both.keepalives)
    both.renew()
    assert {(one.lease, one.ttl) for one in both.renewed.items} == {(7, TTL_S)}
    assert "time_to_live" not in both.client.calls


def test_watch_that_is_asked_stays_while_others_are_answered(both):
    both.script.is_silent = {"watch"}
    both.watch._ask(time.monotonic() - 5.0)
    both.renew()
    both.tick(both.watch, ANSWER_TIMEOUT_S - 0.1)
    assert both.is_open(both.watch)
    assert both.tick(both.watch, ANSWER_TIMEOUT_S + 0.1) == 0.0


def test_watch_that_is_not_created_is_left_though_others_are_answered(clients):
    """Leave it, as it would be blind for ever."""
    script = Script()
    with ScriptedEtcd(watch=lambda _: (), keepalive=script.keepalive) as etcd:
        client, renewed = clients(etcd.endpoint), Seen()
        watch = client.watch(b"k", b"", 1, lambda _: None)
        client.keepalives(renewed.deliver).send(7)
        renewed.wait(lambda seen: seen.items)
        etcd.wait(lambda etcd: etcd.seen["watch"])
        begun_at = time.monotonic()
        wait_reading(watch)
        watch._channel.heard_at = begun_at + 1.0
        assert watch.tick(begun_at + ANSWER_TIMEOUT_S + 0.1) == 0.0
        client.close()


def test_keepalive_is_left_though_others_are_answered(both):
    """A follower that cannot reach its leader answers the rest."""
    both.script.is_silent = {"keepalive"}
    both.keepalives.send(7)
    sent_at = time.monotonic()
    wait_reading(both.keepalives)
    both.channel.heard_at = sent_at + 3.0
    both.keepalives.tick(sent_at + TTL_S / 12 - 0.5)
    assert both.is_open(both.keepalives)
    assert both.keepalives.tick(sent_at + TTL_S / 12 + 0.1) == 0.0


def test_patience_with_who_is_asked_is_twice_what_the_last_answer_took():
    """A process that hardly runs must not give up just before an answer."""
    patience = AnswerTimeout(5.0, 10.0)
    assert patience.when_asked == ANSWER_TIMEOUT_S
    patience.answered(2.0)
    assert patience.when_asked == 4.0

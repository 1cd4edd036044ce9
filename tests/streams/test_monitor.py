"""Monitor partitions, with a fake store and fake readers."""

import asyncio

import attrs
import pytest

from rink.streams import RedisUnavailable
from rink.streams.consumer import monitor
from rink.streams.consumer.owner import OwnerMemory
from rink.streams.errors import OffsetMoved
from rink.streams.retention import Retention
from rink.streams.store.keys import Names
from rink.streams.store.values import PartitionBounds, PartitionPlace, Position


@attrs.define(eq=False)
class Owner:
    number: int
    token: int = 7
    epoch: str = "0"
    retention: Retention | None = None
    is_paused: bool = False

    def pause(self, is_paused):
        self.is_paused = is_paused

    @property
    def place(self):
        names = Names.of("shop", "orders").partition(self.number)
        return PartitionPlace(
            "orders", self.number, names, "bill", PartitionBounds(10, retention=self.retention)
        )

    @property
    def known(self):
        return OwnerMemory(self.epoch, "0-0", "0-0")


@attrs.define
class Scene:
    """A store, a reader and metrics in one.

    Redis has `epochs` and `fence`.
    """

    owners: list
    epochs: dict = attrs.field(factory=dict)
    fence: int = 7
    is_away: bool = False
    is_paused: bool = False
    counts: int = 0
    failed: dict = attrs.field(factory=dict)
    told: dict = attrs.field(factory=dict)
    shown: set = attrs.field(factory=set)
    as_it_counts: object = None
    looks: int = 0
    trimmed: set = attrs.field(factory=set)

    async def position(self, place):
        if self.is_away:
            raise RedisUnavailable("away")
        epoch = self.epochs.get(place.number, "0")
        return Position("5-0", self.fence, epoch, 0, 0, 0, True, "", self.is_paused)

    async def lag(self, place, most):
        self.counts += 1
        if self.as_it_counts:
            self.as_it_counts()
        return place.number * 10

    async def look(self):
        self.looks += 1

    async def trim(self, names, bounds):
        self.trimmed.add((names.stream, bounds.retention))

    def fail(self, owner, error):
        self.failed[owner.number] = error

    @property
    def metrics(self):
        told, shown = self.told, self.shown

        class Metrics:
            def lag(self, place, events):
                told[place.number] = events

            def show(self, place):
                shown.add(place.number)

        return Metrics()


@pytest.fixture
def look(monkeypatch):
    """Run some rounds of the monitor."""

    def look(scene, times=1):
        async def sleep(seconds):
            nonlocal times
            times -= 1
            if not times:
                raise asyncio.CancelledError

        monkeypatch.setattr(monitor.asyncio, "sleep", sleep)
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(monitor.monitor_partitions(scene, [scene], scene.metrics, scene))

    return look


def test_owner_whose_offset_was_moved_is_told(look):
    scene = Scene([Owner(1), Owner(2)], epochs={2: "1"})
    look(scene)
    assert list(scene.failed) == [2]
    assert isinstance(scene.failed[2], OffsetMoved)


@pytest.mark.parametrize(("fence", "pauses"), [(7, True), (8, False)])
def test_look_out_of_a_paused_partition_pauses_its_owner_alone(look, fence, pauses):
    scene = Scene([Owner(1)], is_paused=True, fence=fence)
    look(scene)
    assert scene.owners[0].is_paused == pauses
    scene.is_paused = False
    look(scene)
    assert not scene.owners[0].is_paused


def test_of_a_later_owners_offset_it_says_nothing(look):
    scene = Scene([Owner(1)], epochs={1: "1"}, fence=8)
    look(scene)
    assert scene.failed == {}


def test_older_data_is_not_taken_for_a_moved_offset(look):
    scene = Scene([Owner(1, epoch="10")], epochs={1: "9"})
    look(scene)
    assert scene.failed == {}


def test_lag_is_counted_once_and_then_now_and_then(look, monkeypatch):
    scene = Scene([Owner(1), Owner(2)])
    look(scene, times=5)
    assert (scene.told, scene.counts) == ({1: 10, 2: 20}, 2)
    monkeypatch.setattr(monitor, "LAG_INTERVAL_S", 0)
    look(scene, times=5)
    assert scene.counts == 2 + 10


def test_lag_of_a_partition_that_went_meanwhile_is_not_told(look):
    scene = Scene([Owner(1)])
    scene.as_it_counts = scene.owners.clear
    look(scene)
    assert scene.told == {}


def test_idle_partitions_are_trimmed_where_events_are_kept(look):
    scene = Scene([Owner(1), Owner(2, retention=Retention(1000)), Owner(3, retention=Retention())])
    look(scene)
    assert scene.trimmed == {(scene.owners[1].place.names.stream, Retention(1000))}


def test_evictions_are_looked_for_at_the_start_and_now_and_then(look, monkeypatch):
    scene = Scene([])
    look(scene, times=5)
    assert scene.looks == 1
    monkeypatch.setattr(monitor, "LAG_INTERVAL_S", 0)
    look(scene, times=5)
    assert scene.looks == 1 + 5


def test_it_goes_on_when_redis_is_back(look, monkeypatch):
    scene = Scene([Owner(1)], is_away=True)
    look(scene, times=3)
    assert scene.told == {}
    scene.is_away = False
    look(scene)
    assert scene.told == {1: 10}
    assert scene.shown == {1}

"""Test a processor without servers, or a whole app on a real Redis.

    outcome = process(app, "bill", [Order(order_id=1, customer="a")])
    assert outcome.outputs == {"invoices": [Invoice(...)]}

    with running(app, workers=2) as run:
        orders.send_many_blocking(...)
        run.drain()

`process` runs the code of a worker, with lists instead of Redis and etcd. So retries, dead letters,
commits and outputs are the same as in a worker.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from rink.errors import UsageError
from rink.plural import plural
from rink.streams.app import App
from rink.streams.consumer.buffer import DATA, StreamEntry
from rink.streams.consumer.error_log import ErrorLog
from rink.streams.consumer.grant_run import GrantRun, ProcessorContext
from rink.streams.consumer.metrics import WorkerMetrics
from rink.streams.consumer.owner import GrantOwner
from rink.streams.consumer.poison import PoisonSuspects
from rink.streams.consumer.reader import Reader
from rink.streams.consumer.worker import Worker, check_processors
from rink.streams.dead_letter import DeadLetter
from rink.streams.dead_letter_stream import DeadLetterStream
from rink.streams.failure_policy import Quarantined
from rink.streams.processor import Processor
from rink.streams.processor_events import Outputs
from rink.streams.store import entry_ids
from rink.streams.store.byte_limits import SharedMemory
from rink.streams.store.keys import Names, PartitionNames
from rink.streams.store.store import Store
from rink.streams.store.values import (
    CommitStep,
    Output,
    PartitionBounds,
    PartitionPlace,
    RawEntry,
    Taken,
)
from rink.streams.stream import Stream
from rink.testing.memory.cluster import MemoryCluster
from rink.testing.redis_server.local import local_redis

_TOKEN = 1
_POLL_INTERVAL_S = 0.005
_MAX_TRANSIENT_FOR_S = 1.0


@attrs.frozen
class Outcome:
    """Hold the results of a processor for its records.

    Attributes:
        processed: the records that were processed and committed, in order within each partition.
        outputs: the outputs of the commits, by the name of the stream.
        dead: the dead letters.
        quarantined: the reason for each quarantined partition (`quarantine` and `halt`).
        commits: the number of processed events of each commit.
    """

    processed: list[Any] = attrs.field(factory=list)
    outputs: dict[str, list[Any]] = attrs.field(factory=dict)
    dead: list[DeadLetter[Any]] = attrs.field(factory=list)
    quarantined: dict[int, str] = attrs.field(factory=dict)
    commits: list[int] = attrs.field(factory=list)


def process(app: App, processor: str, records: Iterable[Any], *, seconds: float = 10.0) -> Outcome:
    """Run a processor on records, in their partitions, without a server.

    Retries pause for a millisecond. An event becomes a dead letter after `max_attempts`, and
    `retry_for` is ignored. A transient error quarantines the partition after a second.
    `take(n, within=...)` waits for no more events than the records.

    `send` still needs Redis. Give outputs to `events.commit`, or replace the function that sends.

    Args:
        app: the app of the processor.
        processor: the name of the processor.
        records: instances of the stream's class, or encoded records as bytes. For a stream of dead
            letters, use `DeadLetter(record=..., error=...)`.
        seconds: the timeout.

    Raises:
        RecordError: a record has no partition key, or does not match.
        TimeoutError: the processor took longer. The message has the counts so far.
        ConfigError: the app has no such processor.
        UsageError: an event loop is running. Call this from a plain test function.
    """
    check_processors(app, [processor])
    if asyncio._get_running_loop() is not None:  # noqa: SLF001 - the public one raises
        raise UsageError(
            "process() cannot run within an event loop: call it from a plain test function"
        )
    return asyncio.run(_process(app.processors[processor], list(records), seconds))


async def _process(processor: Processor[Any], records: Sequence[Any], seconds: float) -> Outcome:
    policy = attrs.evolve(
        processor.policy,
        backoff=(0.001, 0.001),
        retry_for=0.0,
        transient_for=min(processor.policy.transient_for, _MAX_TRANSIENT_FOR_S),
    )
    processor = attrs.evolve(processor, policy=policy)
    outcome, given_up = Outcome(), asyncio.Event()
    # A processor in a thread cannot be cancelled, so it also gets an event.
    asyncio.get_running_loop().call_later(seconds, given_up.set)
    try:
        async with asyncio.timeout(seconds):
            for number, data in sorted(_shares(processor, records).items()):
                await _Partition(processor, number, data, outcome, given_up).run()
    except TimeoutError:
        raise TimeoutError(
            f"processor {processor.name!r} did not finish {len(records)} "
            f"{plural(len(records), 'record')} within {seconds:g} s: committed: "
            f"{len(outcome.processed)}, dead letters: {len(outcome.dead)}; see the log"
        ) from None
    return outcome


def _shares(processor: Processor[Any], records: Sequence[Any]) -> dict[int, list[list[bytes]]]:
    """Return the entries of each partition; bytes go to partition 0."""
    stream, shares = processor.stream, dict[int, list[list[bytes]]]()
    for record in records:
        is_raw = isinstance(record, bytes)
        number = 0 if is_raw else stream.partition_of(record)
        shares.setdefault(number, []).append([DATA, record] if is_raw else stream.entry_of(record))
    return shares


class _Partition:
    """Process one partition, from a list of records instead of Redis."""

    def __init__(
        self,
        processor: Processor[Any],
        number: int,
        data: Sequence[list[bytes]],
        outcome: Outcome,
        given_up: asyncio.Event,
    ) -> None:
        self._processor = processor
        self._place = processor.place(number)
        self.limits = processor.stream.app.limits
        self._data: list[RawEntry] = [
            (f"{number}-0".encode(), entry) for number, entry in enumerate(data, 1)
        ]
        self._unread = list(self._data)
        self._outcome = outcome
        self._given_up = given_up
        self._done = asyncio.Event()
        self._targets: set[Stream[Any]] = set()

    async def run(self) -> None:
        store = _StoreOf(self)
        context = ProcessorContext(
            processor=self._processor,
            store=store,
            reader=_NoReader(store, 1, SharedMemory(1)),
            metrics=WorkerMetrics(self._processor.stream.app.name),
            suspects=PoisonSuspects(),
            error_log=ErrorLog(self._processor.name),
            halt=lambda reason: None,
            given_up=self._given_up,
        )
        owner = _OwnerOfAll(
            self._processor, store, self._place, _TOKEN,
            Taken(entry_ids.NONE, "0", "", "", {}, []),
            is_held=lambda: True, suspects=context.suspects, metrics=context.metrics,
            error_log=context.error_log, wants_more=self._feed,
            may_hold=lambda: self.limits.in_flight,
        )  # fmt: skip
        owner.targets, owner.unread = self._targets, self._unread
        self._feed(owner)
        over = asyncio.create_task(self._over(owner))
        try:
            await GrantRun(context, owner, self._place, _TOKEN).run(over)
        except Quarantined as error:
            self._outcome.quarantined[self._place.number] = str(error)
        finally:
            over.cancel()

    async def _over(self, owner: GrantOwner[Any]) -> bool:
        """Wait until all events are committed, or the processor waits for more."""
        while not self._done.is_set():
            if owner.is_idle and not self._unread and not owner.buffer.ready:
                break
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_INTERVAL_S):
                    await self._done.wait()
        return True

    def _feed(self, owner: GrantOwner[Any]) -> None:
        if (room := owner.buffer.room) and self._unread:
            owner.feed(self._unread[:room])
            del self._unread[:room]

    def commit(self, step: CommitStep) -> None:
        """Record a commit in the outcome."""
        letters = [self._letter(letter) for letter in step.letters]
        dead = {letter.event for letter in letters}
        first, last = entry_ids.order(step.expected)[0], entry_ids.order(step.new)[0]
        outcome = self._outcome
        outcome.commits.append(step.processed)
        outcome.processed.extend(
            self._record(StreamEntry.of(self._data[number - 1]))
            for number in range(first + 1, last + 1)
            if f"{number}-0" not in dead
        )
        outcome.dead.extend(letters)
        for output in step.outputs:
            stream = self._stream_of(output.target)
            sent = outcome.outputs.setdefault(stream.name, [])
            sent.append(stream.codec.decode(_bytes(output.fields[1])))
        if last == len(self._data):
            self._done.set()

    def _letter(self, letter: Output) -> DeadLetter[Any]:
        stream = DeadLetterStream(self._processor.stream, self._processor.name)
        return stream.decode(StreamEntry.of((b"0-0", [_bytes(field) for field in letter.fields])))

    def _record(self, entry: StreamEntry) -> Any:
        try:
            return self._processor.stream.decode(entry)
        except Exception:  # the user's codec may raise anything
            return entry.data

    def _stream_of(self, names: PartitionNames) -> Stream[Any]:
        for stream in self._targets:
            for number in range(stream.partition_count):
                if stream.names.partition(number) == names:
                    return stream
        raise AssertionError(names)


def _bytes(data: bytes | str) -> bytes:
    return data if isinstance(data, bytes) else data.encode()


class _OwnerOfAll(GrantOwner[Any]):
    """Wait only for existing records, and record the streams of outputs."""

    targets: set[Stream[Any]]
    unread: list[RawEntry]

    def _has_all(self) -> bool:
        return not self.unread and not self.buffer.ready

    def _is_over(self, deadline: float) -> bool:
        return self._has_all() or super()._is_over(deadline)

    async def _wait_for_change(self, deadline: float | None) -> None:
        if deadline is not None and self._has_all():
            now = asyncio.get_running_loop().time()
            deadline = min(deadline, now + _POLL_INTERVAL_S)
        await super()._wait_for_change(deadline)

    async def commit(self, outputs: Outputs[Any], count: int | None = None) -> None:
        outputs = list(outputs)
        self.targets.update(stream for stream, _ in outputs)
        await super().commit(outputs, count)


class _StoreOf(Store):
    """Answer an owner from the lists of its partition instead of Redis."""

    def __init__(self, partition: _Partition) -> None:
        self._partition = partition
        self.limits = partition.limits

    async def commit(self, place: PartitionPlace, step: CommitStep) -> None:
        self._partition.commit(step)

    async def settle_count(self, names: Names, stream: str, count: int, hasher: str = "") -> None:
        pass

    async def extend(self, place: PartitionPlace, token: int, epoch: str, ceiling: str) -> None:
        pass

    async def close_place(self, place: PartitionPlace, token: int) -> None:
        pass

    async def trim(self, names: PartitionNames, bounds: PartitionBounds | None = None) -> int:
        return 0


class _NoReader(Reader):
    """Read nothing, because `_Partition` feeds all records."""

    def wake(self, owner: GrantOwner[Any]) -> None:
        pass


class Running:
    """Control an app's workers in this process, on the Redis at `redis_url`."""

    def __init__(self, app: App, redis_url: str) -> None:
        self.redis_url = redis_url
        self._app = app

    def drain(self, seconds: float = 10.0) -> None:
        """Wait until every processor has committed every event.

        Raises:
            AssertionError: this took longer. The message names the processors that are behind,
                with their lag and the reason of a quarantine.
        """
        self._app.connections.run_blocking(self._drain(seconds))

    async def _drain(self, seconds: float) -> None:
        end = asyncio.get_running_loop().time() + seconds
        # A processor may send events to a processor that was checked before. So all are done only
        # after two rounds in a row without a lag and with equal offsets.
        last_offsets: list[str] | None = None
        while True:
            behind, offsets = await self._behind()
            if not behind and offsets == last_offsets:
                return
            last_offsets = None if behind else offsets
            assert asyncio.get_running_loop().time() < end, (
                f"processors are behind after {seconds:g} s: {behind}"
            )
            await asyncio.sleep(0.01)

    async def _behind(self) -> tuple[list[str], list[str]]:
        """Return the processors that are behind, and all offsets."""
        store, behind, offsets = (await self._app.connections.open()).store, [], []
        for processor in self._app.processors.values():
            for number in range(processor.stream.partition_count):
                place = processor.place(number)
                look = await store.look(place)
                offsets.append(look.position.offset)
                if look.lag:
                    events = f"{look.lag} {plural(look.lag, 'event')}"
                    reason = look.position.quarantined
                    lag = f"{events}, quarantined: {reason}" if reason else events
                    behind.append(f"{processor.name} in {place.role}: {lag}")
        return behind, offsets


@contextlib.contextmanager
def running(app: App, *, workers: int = 1, redis: str | None = None) -> Iterator[Running]:
    """Run an app's workers for as long as the `with` lasts.

    The workers use an etcd in memory and a real redis-server.

    Args:
        app: the app, whose `redis` and `etcd` are replaced during the `with`.
        workers: the number of workers, all in this process.
        redis: the URL of a server to use instead of starting one.

    Raises:
        ConfigError: there is no redis-server to start.
    """
    with contextlib.ExitStack() as stack:
        url = redis or stack.enter_context(local_redis(appendonly=False)).url
        cluster = stack.enter_context(MemoryCluster())
        stack.enter_context(app.connections.to_another_redis(url))
        stack.callback(setattr, app, "etcd", app.etcd)
        app.etcd = cluster.client
        tasks = app.connections.run_blocking(_start(app, workers))
        try:
            yield Running(app, url)
        finally:
            app.connections.run_blocking(_stop(app, tasks))


Started = list[tuple[Worker, "asyncio.Task[None]"]]


async def _start(app: App, count: int) -> Started:
    workers = [Worker(app, name=f"worker-{number}") for number in range(count)]
    return [(worker, asyncio.create_task(worker.run())) for worker in workers]


async def _stop(app: App, started: Started) -> None:
    for worker, _ in started:
        worker.stop()
    results = await asyncio.gather(*(task for _, task in started), return_exceptions=True)
    await app.close()
    for result in results:
        if isinstance(result, BaseException):
            raise result

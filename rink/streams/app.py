"""Declare an app: its streams, processors and tasks, and its servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from rink.arguments import check_seconds
from rink.callables import check_function
from rink.core.keys import check_name
from rink.errors import ConfigError
from rink.redis.async_client import Connect
from rink.streams.app_connections import Connections
from rink.streams.codec import Codec
from rink.streams.dead_letter import DeadLetter
from rink.streams.dead_letter_stream import DeadLetterStream
from rink.streams.event import Middleware
from rink.streams.failure_policy import OnError, Policy
from rink.streams.hashers import Hasher
from rink.streams.hooks import Hook
from rink.streams.processor import OnDataLoss, Processor
from rink.streams.records.partition_keys import PartitionBy
from rink.streams.retention import Keep
from rink.streams.store.byte_limits import IN_FLIGHT_BYTES, REPLY_BYTES, ByteLimits
from rink.streams.store.keys import check_processor_name
from rink.streams.stream import Stream, Trim
from rink.streams.transient_errors import TRANSIENT, TransientError

if TYPE_CHECKING:
    from rink.streams.consumer.app_tasks import Task
    from rink.streams.signatures import Declares

SESSION_SETTINGS = {
    "ca", "cert", "clock", "key", "margin", "password", "prefix", "timeout", "user",
}  # fmt: skip
"""The settings of `rink.Session` that an app may pass on."""

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class App:
    """Streams and what processes them, under one name.

    Args:
        name: of the app: part of every key in Redis and of every group in etcd.
        redis: a URL as redis-py takes it (`rediss://` for TLS, `unix://`, user and password in it),
            or a function that makes a client of redis-py's: with its own settings, from a Sentinel,
            or a RedisCluster. The client and its pool are this app's from then on.
        etcd: endpoints, as `rink.Session` takes them; or a function that makes a client, one for
            each worker.
        ttl: seconds until a crashed worker loses its partitions.
        session: more settings of `rink.Session`: prefix, user, password, ca, cert, key, margin,
            timeout; in tests also clock.
        max_reply_bytes: about how many bytes one request reads from Redis or sends to it; one event
            at least.
        max_in_flight_bytes: about how many bytes of events a worker, or a sender, holds; a commit
            with more outputs is refused.
    """

    def __init__(
        self,
        name: str,
        *,
        redis: str | Connect = "redis://127.0.0.1:6379",
        etcd: str | Sequence[str] | Callable[[], Any] | None = None,
        ttl: float = 20.0,
        session: Mapping[str, Any] | None = None,
        max_reply_bytes: int = REPLY_BYTES,
        max_in_flight_bytes: int = IN_FLIGHT_BYTES,
    ) -> None:
        self.name = check_name("app", name)
        self.streams: dict[str, Stream[Any]] = {}
        self.processors: dict[str, Processor[Any]] = {}
        self.tasks: dict[str, Task] = {}
        self.worker_starts: list[Hook] = []
        self.worker_stops: list[Hook] = []
        if not callable(redis) and not isinstance(redis, str):
            raise ConfigError(
                f"redis={redis!r} is neither a URL nor a function that makes a client: each event "
                "loop needs a client of its own"
            )
        self.etcd = etcd
        self.ttl = ttl
        self.session = dict(session or {})
        if unknown := sorted(self.session.keys() - SESSION_SETTINGS):
            raise ConfigError(
                f"session= has no setting {unknown[0]!r}: it may have "
                f"{', '.join(sorted(SESSION_SETTINGS))}. `ttl` and `etcd` are settings of the app"
            )
        self.limits = ByteLimits(max_reply_bytes, max_in_flight_bytes)
        self.connections = Connections(self.name, redis, self.limits)

    # ── what it consists of ──────────────────────────────────────────────────────────────────

    def stream(
        self,
        name: str,
        *,
        record: type[R],
        partition_by: PartitionBy[R],
        partition_count: int = 16,
        partition_size: int = 50_000,
        trim: Trim = "committed",
        codec: Codec[R] | None = None,
        hasher: Hasher | None = None,
        keep: Keep | None = None,
        keep_bytes: int | None = None,
    ) -> Stream[R]:
        """Declare a stream.

        Args:
            name: of the stream, within the app.
            record: what it carries: a subclass of `Record`.
            partition_by: the field, or a function of the record, that is its key: records of one
                key are processed in order.
            partition_count: the number of partitions, which can never change.
            partition_size: the most events that a partition holds, including committed ones that
                are not trimmed yet. With `keep` or `keep_bytes`, only events count that some
                processor has not committed.
            trim: `committed` makes senders wait when a partition is full of events that some
                processor has not committed; `oldest` drops the oldest events and counts them.
                `oldest` with `keep` or `keep_bytes` drops what exceeds these, processed or not, and
                senders never wait.
            codec: encodes records; None for JSON.
            hasher: turns a key's text into an int; its partition is that number modulo
                `partition_count`. None for the built-in hash. It must be the same in all programs,
                for ever: Redis keeps its answers for sample keys, and a program with other answers
                is refused.
            keep: how long events stay that every processor has committed, for new and reset
                processors: "7d", "12h", "30m", "90s", a timedelta, or seconds. 0 ends it; None
                leaves the setting in Redis.
            keep_bytes: the bytes of such events in each partition. With both, the first limit that
                is reached counts.

        Raises:
            ConfigError: a setting cannot be used, or there is such a stream already.
        """
        if name in self.streams:
            raise ConfigError(f"app {self.name!r} has a stream {name!r} already")
        stream = Stream(
            self, name, record=record, partition_by=partition_by, partition_count=partition_count,
            partition_size=partition_size, trim=trim, codec=codec, hasher=hasher, keep=keep,
            keep_bytes=keep_bytes,
        )  # fmt: skip
        self.streams[name] = stream
        return stream

    def processor(
        self,
        stream: Stream[R],
        *,
        name: str | None = None,
        start: Literal["earliest", "latest"] = "earliest",
        commit: Literal["auto", "manual"] = "auto",
        on_error: OnError | None = None,
        max_attempts: int = 3,
        max_crashes: int = 3,
        retry_for: float = 600.0,
        transient: Sequence[TransientError] = TRANSIENT,
        transient_for: float = 3600.0,
        timeout: float | None = None,
        breaker: int | None = 5,
        backoff: tuple[float, float] = (0.1, 30.0),
        on_data_loss: OnDataLoss = "quarantine",
        prefetch: int = 1000,
        max_uncommitted: int = 256,
        middleware: Sequence[Middleware[R]] = (),
        rebalance_delay: float = 10.0,
        initial_delay: float = 2.0,
        leave_delay: float = 0.0,
        grace: float = 8.0,
        on_partition_start: Hook | None = None,
        on_partition_stop: Hook | None = None,
    ) -> Declares[R]:
        """Declare a function as the processor of a stream.

        The function is called with `Events` for each partition.

        An `async def` function runs on the event loop; a plain one in a thread for each partition.

        Args:
            stream: of this app.
            name: the function's name where None: the name of its offsets, so rename with care.
            start: where it begins in a partition that it has never seen.
            commit: `auto` commits an event when the next is asked for; `manual` only by
                `events.commit()`.
            on_error: what happens to an event that is given up, see `Policy`. None is
                `dead-letter`, and `quarantine` for a stream of dead letters.
            max_attempts: how often an event must fail alone before it is given up.
            max_crashes: how many crashes an event may cause before it is given up.
            retry_for: seconds for which an event is retried, at least; its partition waits for it.
            transient: errors that pass by themselves, such as an outage: exception classes, and
                functions that tell whether an exception is one. They blame no event: the partition
                waits and tries again. Extend the default: `(*TRANSIENT, MyError)`.
            transient_for: seconds that a partition waits for that, at most; then it is quarantined.
            timeout: seconds for an event, and for a batch that many for each of its events; None
                for no limit. An `async def` function is cancelled, and its event has failed. A
                plain function goes on, and the timeout is logged and counted.
            breaker: how many events in a row may fail: then the program is to blame, and the
                partition is quarantined before the last of them is given up. Half of the last 100
                events have the same effect. None for no limit.
            backoff: seconds: the first pause between tries, and the longest one; a millisecond at
                least.
            on_data_loss: what follows where Redis has older data than the owner knows: `quarantine`
                stops the partition; `continue` accepts the data of Redis, and logs an error.
            prefetch: how many events of a partition are in memory, at most.
            max_uncommitted: how many events may be given and not committed. So many may come again
                after a crash, and `take` takes so many at most.
            middleware: goes around each batch, see `Middleware`.
            rebalance_delay: seconds that new workers wait for partitions while all are owned.
            initial_delay: the same while the group begins.
            leave_delay: seconds that the partitions of a crashed worker wait for one of its name; a
                planned stop hands over at once.
            grace: seconds until another worker may have a partition that was lost here. The
                function has three quarters of them to return; then it is cancelled, and its events
                come again.
            on_partition_start: a function that is called with an `OwnedPartition` when this worker
                has taken a partition, before any event. After an error it is called again, with the
                pauses of `backoff`; no event is blamed.
            on_partition_stop: a function that is called with it after the last commit and before
                another worker may have the partition, if the start has succeeded. It has what is
                left of `grace`; an error is logged.

        Raises:
            ConfigError: a setting cannot be used, or there is such a processor already.
        """
        if not isinstance(stream, Stream):
            raise ConfigError(f"{stream!r} is no stream: write `@app.processor(stream)`")
        if self.streams.get(stream.name) is not stream:
            raise ConfigError(f"{stream!r} is of another app than {self.name!r}")
        if commit not in ("auto", "manual"):
            raise ConfigError(f"commit={commit!r} is neither 'auto' nor 'manual'")
        policy = Policy(
            on_error=stream.on_error(on_error), max_attempts=max_attempts, max_crashes=max_crashes,
            backoff=backoff, retry_for=retry_for, transient=transient, transient_for=transient_for,
            timeout=timeout, breaker=breaker,
        )  # fmt: skip

        def declare(function: Any) -> Any:
            declared = Processor(
                name=check_processor_name(check_name("processor", _named(name, function))),
                stream=stream,
                function=function,
                start=start,
                commits_by_hand=commit == "manual",
                policy=policy,
                on_data_loss=on_data_loss,
                prefetch=prefetch,
                max_uncommitted=max_uncommitted,
                middleware=tuple(middleware),
                rebalance_delay=check_seconds("rebalance_delay", rebalance_delay),
                initial_delay=check_seconds("initial_delay", initial_delay),
                leave_delay=check_seconds("leave_delay", leave_delay),
                grace=check_seconds("grace", grace),
                on_partition_start=on_partition_start,
                on_partition_stop=on_partition_stop,
            )
            if declared.name in self.processors:
                raise ConfigError(f"app {self.name!r} has a processor {declared.name!r} already")
            self.processors[declared.name] = declared
            return function

        return declare

    def on_worker_start(self, hook: F) -> F:
        """Call a function when a worker starts, before it joins any group.

        It takes no arguments. What it raises ends the worker.

        Raises:
            ConfigError: it cannot be called so.
        """
        check_function("on_worker_start", hook)
        self.worker_starts.append(hook)
        return hook

    def on_worker_stop(self, hook: F) -> F:
        """Call a function after a worker has left its groups.

        It is called whatever ended the worker.

        It takes no arguments. Hooks are called in reverse order, and not at all if a hook at the
        start has failed.

        Raises:
            ConfigError: it cannot be called so.
        """
        check_function("on_worker_stop", hook)
        self.worker_stops.append(hook)
        return hook

    def task(
        self,
        *,
        every: float | timedelta | None = None,
        cron: str | None = None,
        at_start: bool = False,
        on_leader: bool = False,
        name: str | None = None,
    ) -> Callable[[F], F]:
        """Run a function in the workers: at the start, or now and then.

        It runs beside the processors. An error is logged, and ends that run alone. For work that
        must succeed before any event is processed, use `on_worker_start`.

        Args:
            every: seconds from one start to the next; the first run is at once.
            cron: a cron expression in UTC, such as `0 4 * * *`.
            at_start: when the worker starts; after an error it is tried again, with growing pauses
                up to a minute, until it has succeeded once.
            on_leader: in one worker only: the one that has the role `leader` of the app's group. A
                task with `at_start` or `every` begins at once on each new leader.
            name: the function's name where None.

        Raises:
            ConfigError: not just one of `every`, `cron` and `at_start`, or one that cannot be used.
        """
        # Where an app's streams alone are wanted, no cron needs to be installed.
        from rink.streams.consumer.app_tasks import Task

        def declare(function: F) -> F:
            declared = Task.of(_named(name, function), function, every, cron, at_start, on_leader)
            if declared.name in self.tasks:
                raise ConfigError(f"app {self.name!r} has a task {declared.name!r} already")
            self.tasks[declared.name] = declared
            return function

        return declare

    # ── Redis ────────────────────────────────────────────────────────────────────────────────

    @property
    def redis_url(self) -> str | None:
        """The URL of its Redis; None where a function makes the client."""
        redis = self.connections.redis
        return None if callable(redis) else redis

    async def close(self) -> None:
        """Close the connections of the running event loop.

        Callers that wait for them get a ClosedError.
        """
        await self.connections.close()

    async def __aenter__(self) -> Self:
        await self.connections.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ── for its streams ──────────────────────────────────────────────────────────────────────

    def _processor_names(self, stream: Stream[Any]) -> set[str]:
        return {entry.name for entry in self.processors.values() if entry.stream is stream}

    def _dead_letters(self, source: Stream[R], processor: str) -> Stream[DeadLetter[R]]:
        """Return the stream of a processor's dead letters.

        The first call declares it.
        """
        declared = DeadLetterStream(source, processor)
        stream = self.streams.setdefault(declared.name, declared)
        if not isinstance(stream, DeadLetterStream) or stream.source is not source:
            raise ConfigError(f"app {self.name!r} has a stream {declared.name!r} of another kind")
        return stream

    def __repr__(self) -> str:
        return f"<App {self.name!r}>"


def _named(name: str | None, function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", "") if name is None else name

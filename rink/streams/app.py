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
    """Declare streams, processors and tasks under one name.

    Args:
        name: the app's name, a part of every key in Redis and of every group in etcd.
        redis: a URL for redis-py (`rediss://` for TLS, `unix://`, with user and password), or a
            function that makes a redis-py client: with its own settings, of a Sentinel, or a
            RedisCluster. The app then owns the client and its pool.
        etcd: endpoints, as `rink.Session` takes them, or a function that makes a client for each
            worker.
        ttl: seconds until a crashed worker loses its partitions.
        session: more settings of `rink.Session`: prefix, user, password, ca, cert, key, margin,
            timeout; in tests also clock.
        max_reply_bytes: about the most bytes that one request reads from Redis or sends to it. A
            single event may be larger.
        max_in_flight_bytes: about the most bytes of events that a worker or a sender holds. A
            commit with more bytes of outputs is refused.
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

    # ── declarations ─────────────────────────────────────────────────────────────────────────

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
            name: the stream's name within the app.
            record: the class of its records, such as a subclass of `Record`.
            partition_by: the field that is a record's key, or a function that returns the key.
                Records of one key are processed in order.
            partition_count: the number of partitions, which can never change.
            partition_size: the most events that a partition holds, including committed ones that
                are not trimmed yet. With `keep` or `keep_bytes`, only events that some processor
                has not committed count.
            trim: `committed` makes senders wait when a partition is full of events that some
                processor has not committed; `oldest` drops the oldest events and counts them.
                `oldest` with `keep` or `keep_bytes` drops the events beyond these limits, processed
                or not, and senders never wait.
            codec: encodes records; None for JSON.
            hasher: turns a key's text into an int; its partition is that number modulo
                `partition_count`. None for the built-in hash. It must be the same in all programs,
                and never change. Redis keeps its answers for sample keys, and a program with other
                answers is refused.
            keep: how long to keep events that every processor has committed, for new and reset
                processors: "7d", "12h", "30m", "90s", a timedelta, or seconds. 0 ends the
                retention; None leaves the setting in Redis.
            keep_bytes: how many bytes of such events to keep in each partition. With both, the
                first limit that is reached counts.

        Raises:
            ConfigError: a setting cannot be used, or the app has a stream of this name already.
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

        An `async def` function runs on the event loop, and gets the `Events` of a partition. A
        plain function runs in a thread for each partition, and gets `BlockingEvents`.

        Args:
            stream: a stream of this app.
            name: the name of its offsets, so rename with care; None takes the function's name.
            start: where the processor begins in a partition that is new to it.
            commit: `auto` also commits events that are done because the next one was asked for;
                `manual` commits only in `events.commit()`.
            on_error: what happens to an event that is given up, see `Policy`. None means
                `dead-letter`, or `quarantine` for a stream of dead letters.
            max_attempts: how often an event must fail alone before it is given up.
            max_crashes: how many crashes an event may cause before it is given up.
            retry_for: the least seconds for which an event is retried. Its partition waits then.
            transient: errors that pass by themselves, such as an outage: exception classes, or
                functions that return whether an exception is transient. They blame no event: the
                partition waits and tries again. Extend the default: `(*TRANSIENT, MyError)`.
            transient_for: the most seconds that a partition waits for transient errors to pass.
                Then it is quarantined.
            timeout: the most seconds for an event; a batch has that many for each of its events.
                None for no limit. An `async def` function is cancelled, and its event has failed. A
                plain function goes on, and the timeout is logged and counted.
            breaker: how many failed events in a row quarantine the partition, since the program is
                to blame then. The last of them is not given up. 50 failures among the last 100
                events have the same effect. None for no limit.
            backoff: the first pause between tries and the longest one, in seconds; at least 0.001.
            on_data_loss: what follows if Redis has older data than the owner knows: `quarantine`
                stops the partition; `continue` accepts the data of Redis, and logs an error.
            prefetch: the most events of a partition in memory.
            max_uncommitted: the most events that the function may get before a commit. They may
                come again after a crash. This is also the limit of `take`.
            middleware: context managers around each batch, see `Middleware`.
            rebalance_delay: seconds that new workers wait for partitions while all are owned.
            initial_delay: seconds that new workers wait instead while the group is starting.
            leave_delay: seconds that the partitions of a crashed worker wait for a worker of the
                same name. A planned stop hands over at once.
            grace: seconds from a partition's loss until another worker may have it. The function
                must return within three quarters of that time. Then it is cancelled, and its events
                come again.
            on_partition_start: called with the `OwnedPartition` after this worker has taken the
                partition, before any event. After an error it is called again, with the pauses of
                `backoff`, and no event is blamed.
            on_partition_stop: called with the `OwnedPartition` after the last commit, and before
                another worker may have the partition, if the start has succeeded. It has the rest
                of `grace`; an error is logged.

        Raises:
            ConfigError: a setting cannot be used, or the app has such a processor already.
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

        The function takes no arguments. An error ends the worker.

        Raises:
            ConfigError: the function cannot be called without arguments.
        """
        check_function("on_worker_start", hook)
        self.worker_starts.append(hook)
        return hook

    def on_worker_stop(self, hook: F) -> F:
        """Call a function after a worker has left its groups.

        The function takes no arguments. It is called after any end of the worker, unless a hook at
        the start has failed. Several functions are called in reverse order.

        Raises:
            ConfigError: the function cannot be called without arguments.
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
        """Run a function in the workers: at the start, or on a schedule.

        It runs beside the processors. An error is logged, and ends only that run. For work that
        must succeed before any event is processed, use `on_worker_start`.

        Args:
            every: seconds from one start to the next; the first run is at once.
            cron: a cron expression in UTC, such as `0 4 * * *`.
            at_start: run it when the worker starts. After an error it runs again, with growing
                pauses up to a minute, until it has succeeded once.
            on_leader: run it only in the worker that has the role `leader` of the app's group. A
                task with `at_start` or `every` begins at once on each new leader.
            name: the task's name; None takes the function's name.

        Raises:
            ConfigError: none or several of `every`, `cron` and `at_start` are given, or a value
                cannot be used.
        """
        # Only tasks need the cron package.
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
        """Return the URL of Redis, or None if a function makes the client."""
        redis = self.connections.redis
        return None if callable(redis) else redis

    async def close(self) -> None:
        """Close the connections of the running event loop.

        Callers that wait for a connection get a ClosedError.
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

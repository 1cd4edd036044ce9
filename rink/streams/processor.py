"""Hold a processor: the user's function, and its settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar, get_args

import attrs

from rink.arguments import check_count
from rink.callables import check_function, is_async
from rink.errors import ConfigError
from rink.streams.event import Middleware
from rink.streams.failure_policy import Policy
from rink.streams.hooks import Hook
from rink.streams.store.values import PartitionPlace
from rink.streams.stream import Stream, partition_bounds

R = TypeVar("R")

OnDataLoss = Literal["quarantine", "continue"]
"""The policy after a data loss of Redis: stop the partition, or accept the data."""


@attrs.frozen(kw_only=True)
class Processor(Generic[R]):
    """Hold a declaration of `App.processor`, which describes the fields."""

    name: str
    stream: Stream[R]
    function: Callable[..., Any]
    start: str
    commits_by_hand: bool
    policy: Policy
    on_data_loss: OnDataLoss
    prefetch: int
    max_uncommitted: int
    middleware: tuple[Middleware[R], ...]
    rebalance_delay: float
    initial_delay: float
    leave_delay: float
    grace: float
    on_partition_start: Hook | None
    on_partition_stop: Hook | None

    def __attrs_post_init__(self) -> None:
        check_function("processor", self.function, "events")
        for middleware in self.middleware:
            if not callable(middleware):
                raise ConfigError(f"middleware {middleware!r} of {self.name!r} cannot be called")
        for hook in ("on_partition_start", "on_partition_stop"):
            if (function := getattr(self, hook)) is not None:
                check_function(hook, function, "owned")
        if self.start not in ("earliest", "latest"):
            raise ConfigError(f"start={self.start!r} is neither 'earliest' nor 'latest'")
        if self.on_data_loss not in get_args(OnDataLoss):
            raise ConfigError(
                f"on_data_loss={self.on_data_loss!r} is neither 'quarantine' nor 'continue'"
            )
        check_count("max_uncommitted", self.max_uncommitted)
        if check_count("prefetch", self.prefetch) < self.max_uncommitted:
            raise ConfigError(
                f"max_uncommitted={self.max_uncommitted}, prefetch={self.prefetch}: 1 <= "
                f"max_uncommitted <= prefetch is needed"
            )

    @property
    def is_async(self) -> bool:
        """Return whether the function runs on the event loop, not in threads."""
        return is_async(self.function)

    @property
    def group(self) -> str:
        """Return the name of its group in etcd."""
        return f"{self.stream.app.name}/{self.name}"

    @property
    def scheme(self) -> str:
        """Return the scheme by which the group spreads the partitions."""
        return f"balanced:{self.stream.partition_count}"

    def place(self, number: int) -> PartitionPlace:
        """Return a partition as this processor's place."""
        stream = self.stream
        return PartitionPlace(
            stream.name,
            number,
            stream.names.partition(number),
            self.name,
            partition_bounds(stream),
            self.start,
        )

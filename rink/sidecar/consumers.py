"""Hold the consumers of a sidecar and their turns.

`rink.sidecar.consumer_turns` changes them.

A consumer is *alive* while its open stream, or its latest renewal, stands for it. Then its ends are
moved on. It is *present* while it can be told of a turn: by its stream, by its open call, or by its
next renewal. A consumer that is not present keeps its place in a queue until it is forgotten, but
gets no turn.
"""

from __future__ import annotations

import math

import attrs


@attrs.define(eq=False)
class Turn:
    """Hold one consumer's turn of a role, from its grant to its release.

    `lease` is the lease under which it was granted. `why` says why the role was lost.
    """

    role: str
    consumer: Consumer
    token: int
    lease: int
    until_ms: int
    lost_at_ms: int | None = None
    why: str = ""
    is_over: bool = False

    @property
    def is_lost(self) -> bool:
        """Return whether the consumer is to stop, and then to answer."""
        return self.lost_at_ms is not None or self.is_over


@attrs.define(eq=False)
class Consumer:
    """Hold a program that wants roles, until it is forgotten.

    `grant` is its secret. `alive_ms` is the time within which it has to renew, or None. `heard_ms`
    is when it was last heard of, or had its first turn told by its stream. `kept_ms` is for how
    long it is kept after that, without a stream. `moved_at_ms` is when its ends were last
    moved on, and `due_ms` when to look at it. `stream` is the number of its open stream. `is_cut`
    says that its stream was closed, and that nothing was heard since. `calls` counts its open
    calls. `is_pod` marks the sidecar itself, which stands for the whole pod.

    `over` has, for each role, the token of the latest turn that is over. `unanswered` has the turns
    whose end has passed without an answer. The consumer is told that they are lost, until it
    answers.
    """

    name: str
    grant: str
    alive_ms: int | None = None
    releases_on_close: bool = False
    is_pod: bool = False
    heard_ms: int = 0
    kept_ms: int = 0
    moved_at_ms: int = 0
    stream: int | None = None
    is_cut: bool = False
    calls: int = 0
    turns: dict[str, Turn] = attrs.field(factory=dict)
    waiting: dict[str, None] = attrs.field(factory=dict)
    over: dict[str, int] = attrs.field(factory=dict)
    unanswered: dict[str, Turn] = attrs.field(factory=dict)
    is_forgotten: bool = False
    due_ms: float = math.inf

    @property
    def alive_until_ms(self) -> float:
        """Return until when its ends are moved on."""
        if self.is_pod:
            return math.inf
        if self.is_cut:
            return -math.inf
        if self.alive_ms is not None:
            return self.heard_ms + self.alive_ms
        return -math.inf if self.stream is None else math.inf

    @property
    def present_until_ms(self) -> float:
        """Return until when it can be told of a turn, if nothing is heard of it meanwhile.

        A consumer that holds a role and has `alive_ms` must renew. If it does not, its open stream
        stands for nothing. Else each new turn would have an end of its own, and a program that
        hangs would get one role after the other.
        """
        if self.turns and self.alive_ms is not None:
            return self.alive_until_ms
        if self.is_open or self.is_pod:
            return math.inf
        return -math.inf if self.is_cut else self.heard_ms + self.kept_ms

    def is_present(self, now_ms: int) -> bool:
        """Return whether it can be told of a turn."""
        return not self.is_forgotten and now_ms < self.present_until_ms

    @property
    def is_open(self) -> bool:
        """Return whether it has a stream or a call."""
        return self.stream is not None or self.calls > 0

    @property
    def has_nothing(self) -> bool:
        """Return whether nothing keeps it but that an answer may be repeated."""
        has_roles = self.turns or self.waiting or self.unanswered or self.is_pod
        return not has_roles and not self.is_open

    def heard(self, now_ms: int) -> None:
        """Note a sign of life."""
        self.heard_ms, self.is_cut = now_ms, False

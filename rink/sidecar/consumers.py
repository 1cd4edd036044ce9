"""Hold the consumers of a sidecar and their turns.

A consumer is *alive* while its open stream or its latest renewal shows that it works. Then its ends
are moved on. It is *present* while a turn can be reported to it: by its stream, by its open call,
or by its next renewal. A consumer that is not present keeps its place in a queue until it is
forgotten, but gets no turn.
"""

from __future__ import annotations

import math

import attrs


@attrs.define(eq=False)
class Turn:
    """Hold one consumer's turn of a role, from its grant to its release.

    `lease` is the lease of the grant. `why` is the reason of the loss.
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
        """Return whether the consumer must stop, and then answer."""
        return self.lost_at_ms is not None or self.is_over


@attrs.define(eq=False)
class Consumer:
    """Hold a program that wants roles, until it is forgotten.

    Attributes:
        grant: the consumer's secret.
        alive_ms: the time within which it must renew, or None.
        is_pod: True for the sidecar itself, which represents the whole pod.
        heard_ms: the time of its last sign of life, or of the report of its first turn.
        kept_ms: how long it is kept after `heard_ms`, without a stream.
        moved_at_ms: the time at which its ends were last moved on.
        is_cut: True if its stream was closed, without a later sign of life.
        over: the token of the latest turn that is over, for each role.
        unanswered: the turns whose end has passed without an answer. They are reported as lost
            until the consumer answers.
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
        """Return the time until which its ends are moved on."""
        if self.is_pod:
            return math.inf
        if self.is_cut:
            return -math.inf
        if self.alive_ms is not None:
            return self.heard_ms + self.alive_ms
        return -math.inf if self.stream is None else math.inf

    @property
    def present_until_ms(self) -> float:
        """Return the time until which it is present without a sign of life.

        A consumer that holds a role and has `alive_ms` must renew, even with an open stream.
        Otherwise each new turn would have a new end, and a program that hangs would get one role
        after another.
        """
        if self.turns and self.alive_ms is not None:
            return self.alive_until_ms
        if self.is_open or self.is_pod:
            return math.inf
        return -math.inf if self.is_cut else self.heard_ms + self.kept_ms

    def is_present(self, now_ms: int) -> bool:
        """Return whether a turn can be reported to it."""
        return not self.is_forgotten and now_ms < self.present_until_ms

    @property
    def is_open(self) -> bool:
        """Return whether it has a stream or a call."""
        return self.stream is not None or self.calls > 0

    @property
    def has_nothing(self) -> bool:
        """Return whether it has no role, wait, stream or call.

        It is kept for a while, since it may repeat an answer.
        """
        has_roles = self.turns or self.waiting or self.unanswered or self.is_pod
        return not has_roles and not self.is_open

    def heard(self, now_ms: int) -> None:
        """Note a sign of life."""
        self.heard_ms, self.is_cut = now_ms, False

"""Run the turns on an event loop: wake them, and carry out their effects."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

import attrs

from rink.sidecar.clock import now_ms
from rink.sidecar.consumer_turns import ConsumerTurns
from rink.sidecar.consumers import Consumer, Turn
from rink.sidecar.effects import Bye, Effect, Granted, LetGo, Over, Renewed, TurnLost, Unwant, Want

log = logging.getLogger("rink.sidecar")

LEAVES = "draining: this sidecar leaves the group, and takes no more consumers"
"""Tells consumers why nothing is granted here any more.

The operator's reason is another one. It has words such as `SIGTERM`.
"""

POD = "pod"
"""The name of the consumer that is the sidecar itself."""


class ServiceMember(Protocol):
    """Do what the service needs of the member."""

    def session(self) -> tuple[int, int]:
        """Return the live lease and its deadline in ms, or 0 and 0."""
        ...

    def want(self, role: str) -> None:
        """Wait for a role, with a token above every one that was told."""
        ...

    def unwant(self, role: str) -> None:
        """End the wait for a role."""
        ...

    def let_go(self, role: str) -> None:
        """Release a role."""
        ...

    def obstacle(self, role: str) -> str:
        """Return who owns a role, or what keeps this member from holding it."""
        ...


class NoMember:
    """Stand for the member before there is one."""

    def session(self) -> tuple[int, int]:
        """Return that there is no session."""
        return 0, 0

    def want(self, role: str) -> None:
        """Do nothing: the member asks what is wanted once it has joined."""

    unwant = let_go = want

    def obstacle(self, role: str) -> str:
        """Return why nothing is held."""
        del role
        return "the member has not begun"


@attrs.define(eq=False)
class ServiceInbox:
    """Hold what a consumer's stream is yet to be told.

    Events are written out only when they are sent. So a slow reader hears the end of that moment.
    Of a turn that is over by then, it hears only a loss that it has not answered.
    """

    events: deque[Granted | TurnLost | Waiting] = attrs.field(factory=deque)
    is_renewed: bool = False
    bye: str = ""
    changed: asyncio.Event = attrs.field(factory=asyncio.Event)

    def put(self, event: Granted | TurnLost | Waiting) -> None:
        """Add an event."""
        self.events.append(event)
        self.changed.set()


@attrs.frozen(eq=False)
class Waiting:
    """Report to a consumer that it waits for a role, and behind whom."""

    role: str


@attrs.define
class Counts:
    """Count what the metrics show."""

    gained: int = 0
    lost: int = 0


class Service:
    """Keep the turns of a sidecar going.

    Every input goes through here: it notes the member's session first, and carries out what follows
    last. All of it runs on the event loop, so no input sees another one half done.

    Args:
        turns: the turns.
        clock: returns the time in milliseconds of CLOCK_BOOTTIME.
    """

    def __init__(self, turns: ConsumerTurns, clock: Callable[[], int] = now_ms) -> None:
        self.turns = turns
        self.clock = clock
        self.life = secrets.token_hex(4)
        self.counts = Counts()
        self.draining = ""
        """Why no new consumer is taken, in the operator's words, or ""."""
        self.member: ServiceMember = NoMember()
        self.on_change: list[Callable[[Effect], None]] = []
        """Called with each effect, before it is carried out: files, labels."""
        self.heard_ms = 0
        """When a consumer last answered, or was heard of before it was forgotten."""
        self.on_presence: Callable[[], None] = lambda: None
        """Called when consumers may have come or gone."""
        self.on_failure: Callable[[Exception], None] = lambda _: None
        """Called with an error after which turns may be half done."""
        self._bye = ""
        self._inboxes: dict[str, ServiceInbox] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0

    # ── inputs ───────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def changing(self) -> Iterator[int]:
        """Yield the time of an input, and carry out its effects after it.

        An error within would leave turns half done: a role that is never let go, or a consumer that
        is not told. So it is a failure of the whole sidecar, wherever it is raised.
        """
        try:
            self.turns.session(*self.member.session())
            yield self.clock()
            self._follow_up()
        except Exception as error:
            self.on_failure(error)
            raise

    def _follow_up(self) -> None:
        """Carry out what an input has left, and set the timer."""
        now = self.clock()
        wake_at_ms = self.turns.step(now)
        for effect in self.turns.take_effects():
            self._carry_out(effect)
        if self._timer is not None:
            if wake_at_ms is not None and self._timer_at_ms <= wake_at_ms:
                return
            self._timer.cancel()
            self._timer = None
        if wake_at_ms is not None:
            seconds = (wake_at_ms - now) / 1000
            self._timer_at_ms = wake_at_ms
            self._timer = asyncio.get_running_loop().call_later(seconds, self._wake)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def hold(self, consumer: Consumer, roles: list[str]) -> None:
        """Add a consumer."""
        with self.changing() as now:
            self.turns.hold(consumer, roles, now)
        self.on_presence()

    def hold_for_pod(self, roles: list[str]) -> None:
        """Add the sidecar itself as a consumer, which stands for the whole pod.

        Its grant is a secret that nobody is told. So no caller of the API can give its roles back.
        """
        self.hold(Consumer(POD, secrets.token_urlsafe(24), is_pod=True), roles)

    def open_stream(self, consumer: Consumer) -> tuple[int, ServiceInbox]:
        """Give a consumer's new stream a number and an inbox with all that is so."""
        if earlier := self._inboxes.get(consumer.grant):
            self._end_inbox(earlier, "another stream of this grant was opened")
        inbox = self._inboxes[consumer.grant] = ServiceInbox()
        with self.changing() as now:
            stream = self.turns.open_stream(consumer, now)
        inbox.events.clear()  # what was told meanwhile is a part of what is so now
        for turn in consumer.turns.values():
            inbox.put(Granted(turn))
            if turn.lost_at_ms is not None:
                inbox.put(TurnLost(turn))
        for turn in consumer.unanswered.values():
            inbox.put(TurnLost(turn))
        for role in consumer.waiting:
            inbox.put(Waiting(role))
        if self._bye:
            self._end_inbox(inbox, self._bye)
        return stream, inbox

    def close_stream(self, consumer: Consumer, stream: int, by_consumer: bool) -> None:
        """Note that a stream is closed."""
        if consumer.stream == stream:
            self._inboxes.pop(consumer.grant, None)
        with self.changing() as now:
            self.turns.close_stream(consumer, stream, by_consumer, now)

    def renew(self, consumer: Consumer) -> None:
        """Note a sign of life."""
        with self.changing() as now:
            self.turns.renew(consumer, now)

    def end_call(self, consumer: Consumer, is_answered: bool = True) -> None:
        """Note that a consumer's call is over."""
        with self.changing() as now:
            self.turns.end_call(consumer, now, is_answered)

    def release(self, consumer: Consumer, role: str, token: int | None) -> bool:
        """Take an answer or a release; False if it is another consumer's turn."""
        with self.changing() as now:
            self.heard_ms = now
            return self.turns.release(consumer, role, token, now)

    def release_all(self, consumer: Consumer, why: str) -> None:
        """Take a consumer's last word."""
        with self.changing() as now:
            consumer.heard_ms = now
            self.turns.release_all(consumer, why)

    def granted(
        self, role: str, token: int, is_held: Callable[[], bool] = lambda: True
    ) -> Turn | None:
        """Take a role that the member was granted.

        A process that was stopped between the grant and now may have lost it, and have another
        session. So `is_held` is asked after the session is noted: a role that is held then is held
        under this session, or an earlier one was noted, whose deadline has passed.
        """
        with self.changing() as now:
            return self.turns.granted(role, token, now, is_held())

    def lost(self, turn: Turn, why: str) -> None:
        """Note that the member is to give a role up."""
        with self.changing() as now:
            self.turns.lost(turn, why, now)

    def obstacle(self, role: str) -> str:
        """Return who owns a role, or what keeps this member from holding it."""
        return self.member.obstacle(role)

    def say_bye(self, why: str) -> None:
        """End every stream with the reason, and each one that is opened later."""
        self._bye = why
        for inbox in list(self._inboxes.values()):
            self._end_inbox(inbox, why)

    # ── effects ──────────────────────────────────────────────────────────────────────────────

    def _wake(self) -> None:
        self._timer = None
        with self.changing():
            pass

    def _carry_out(self, effect: Effect) -> None:
        for tell in self.on_change:
            tell(effect)
        match effect:
            case Want(role):
                self.member.want(role)
            case Unwant(role):
                self.member.unwant(role)
            case LetGo(role):
                self.member.let_go(role)
            case Granted(turn):
                self.counts.gained += 1
                _say("role %s: granted to %s with token %d", turn.role, turn.consumer, turn.token)
                self._tell(turn.consumer, effect)
            case TurnLost(turn):
                self.counts.lost += 1
                why = json.dumps(turn.why)  # it names other members
                _say("role %s: lost, %s is told: %s", turn.role, turn.consumer, why)
                self._tell(turn.consumer, effect)
            case Renewed(consumer):
                if inbox := self._inboxes.get(consumer.grant):
                    inbox.is_renewed = True
                    inbox.changed.set()
            case Over(turn, why):
                _say("role %s: %s is done with it: %s", turn.role, turn.consumer, why)
                if not turn.consumer.is_forgotten and turn.role in turn.consumer.waiting:
                    self._tell(turn.consumer, Waiting(turn.role))
            case Bye(consumer, why):
                log.info("consumer %s is forgotten: %s", json.dumps(consumer.name), why)
                if inbox := self._inboxes.pop(consumer.grant, None):
                    self._end_inbox(inbox, why)
                self.heard_ms = max(self.heard_ms, consumer.heard_ms)
                self.on_presence()

    def _tell(self, consumer: Consumer, event: Granted | TurnLost | Waiting) -> None:
        if inbox := self._inboxes.get(consumer.grant):
            inbox.put(event)

    @staticmethod
    def _end_inbox(inbox: ServiceInbox, why: str) -> None:
        inbox.bye = inbox.bye or why
        inbox.changed.set()


def _say(text: str, role: str, consumer: Consumer, more: object) -> None:
    """Log a line; names of clients are written as JSON strings only."""
    log.info(text, json.dumps(role), json.dumps(consumer.name), more)

"""Run the turns on an event loop, and execute their effects."""

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
from rink.sidecar.effects import (
    Bye,
    Granted,
    LetGo,
    Over,
    Renewed,
    SidecarEffect,
    TurnLost,
    Unwant,
    Want,
)

log = logging.getLogger("rink.sidecar")

LEAVES = "draining: this sidecar leaves the group, and takes no more consumers"
"""The reason that consumers get when roles are no longer granted here.

The operator's reason is different: it has words such as `SIGTERM`.
"""

POD = "pod"
"""The name of the sidecar itself as a consumer."""


class ServiceMember(Protocol):
    """Declare the part of `rink.sidecar.membership` that the service uses."""

    presence: asyncio.Event

    def session(self) -> tuple[int, int]:
        """Return the live lease and its deadline in ms, or 0 and 0."""

    def want(self, role: str) -> None:
        """Wait for a role, with a token above every earlier token."""

    def unwant(self, role: str) -> None:
        """End the wait for a role."""

    def let_go(self, role: str) -> None:
        """Release a role."""

    def obstacle(self, role: str) -> str:
        """Return the owner of a role, or why this member does not hold it."""

    def fail(self, failure: BaseException) -> None:
        """Note an error after which turns may be half done."""


@attrs.define(eq=False)
class ServiceInbox:
    """Hold the events that a consumer's stream has not sent yet.

    Events are written only when they are sent, so a slow reader gets the present end. If a turn is
    over by then, the reader gets only a loss that it has not answered.
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
    """Report to a consumer that it waits for a role, and why."""

    role: str


class Service:
    """Keep the turns of a sidecar going.

    Each input first notes the member's session, then changes the turns, and then executes their
    effects. All of this runs on the event loop without an await, so inputs never interleave.
    """

    def __init__(self, turns: ConsumerTurns, clock: Callable[[], int] = now_ms) -> None:
        self.turns = turns
        self.clock = clock
        self.life = secrets.token_hex(4)
        self.grants_told = self.losses_told = 0
        self.draining = ""
        """The reason why no new consumer is taken, in the operator's words, or ""."""
        self.member: ServiceMember
        """The member, which sets itself here."""
        self.on_change: list[Callable[[SidecarEffect], None]] = []
        """Functions that get each effect before it is executed: files, labels."""
        self.heard_ms = 0
        """The time of the last answer, or of a forgotten consumer's last sign of life."""
        self._bye = ""
        self._inboxes: dict[str, ServiceInbox] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0

    # ── inputs ───────────────────────────────────────────────────────────────────────────────

    @contextlib.contextmanager
    def changing(self) -> Iterator[int]:
        """Yield the time of an input, and then execute its effects.

        After an error in the block, a role might never be released, or a consumer might get no
        report. So any error is a failure of the whole sidecar.
        """
        try:
            self.turns.session(*self.member.session())
            yield self.clock()
            self._follow_up()
        except Exception as error:
            self.member.fail(error)
            raise

    def _follow_up(self) -> None:
        now = self.clock()
        wake_at_ms = self.turns.step(now)
        for effect in self.turns.take_effects():
            self._execute(effect)
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
        self.member.presence.set()

    def hold_for_pod(self, roles: list[str]) -> None:
        """Add the sidecar itself as a consumer, which represents the whole pod.

        Its grant stays secret, so no caller of the API can give its roles back.
        """
        self.hold(Consumer(POD, secrets.token_urlsafe(24), is_pod=True), roles)

    def open_stream(self, consumer: Consumer) -> tuple[int, ServiceInbox]:
        """Return a new stream's number, and an inbox with the present state."""
        if earlier := self._inboxes.get(consumer.grant):
            self._end_inbox(earlier, "another stream of this grant was opened")
        inbox = self._inboxes[consumer.grant] = ServiceInbox()
        with self.changing() as now:
            stream = self.turns.open_stream(consumer, now)
        inbox.events.clear()  # the present state below includes these events
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
        """Take an answer or a release, or return False for another's turn."""
        with self.changing() as now:
            self.heard_ms = now
            return self.turns.release(consumer, role, token, now)

    def release_all(self, consumer: Consumer, why: str) -> None:
        """Note that a consumer has stopped all its work, and forget it."""
        with self.changing() as now:
            consumer.heard_ms = now
            self.turns.release_all(consumer, why)

    def granted(
        self, role: str, token: int, is_held: Callable[[], bool] = lambda: True
    ) -> Turn | None:
        """Take a role that the member was granted.

        The order matters. A process that was stopped since the grant may have lost the role and
        have a new session. So `is_held` is called after the session was noted. If the role is held
        then, it is held under the noted session, or the deadline of the noted session has passed.
        """
        with self.changing() as now:
            return self.turns.granted(role, token, now, is_held())

    def lost(self, turn: Turn, why: str) -> None:
        """Note that the member must give a role up."""
        with self.changing() as now:
            self.turns.lost(turn, why, now)

    def say_bye(self, why: str) -> None:
        """End every stream with the reason, also streams that open later."""
        self._bye = why
        for inbox in list(self._inboxes.values()):
            self._end_inbox(inbox, why)

    # ── effects ──────────────────────────────────────────────────────────────────────────────

    def _wake(self) -> None:
        self._timer = None
        with self.changing():
            pass

    def _execute(self, effect: SidecarEffect) -> None:
        # Invariant: effects are executed in the order in which the turns left them, each one wholly
        # and only once, and `on_change` comes first. It holds since `_follow_up` alone calls this,
        # and nothing here awaits. So the file of a role is removed (at `Over`) before the member
        # releases the role (at the `LetGo` that follows).
        for notify in self.on_change:
            notify(effect)
        match effect:
            case Want(role):
                self.member.want(role)
            case Unwant(role):
                self.member.unwant(role)
            case LetGo(role):
                self.member.let_go(role)
            case Granted(turn):
                self.grants_told += 1
                _say("role %s: granted to %s with token %d", turn.role, turn.consumer, turn.token)
                self._tell(turn.consumer, effect)
            case TurnLost(turn):
                self.losses_told += 1
                why = json.dumps(turn.why)  # it contains names of other members
                _say("role %s: lost by %s: %s", turn.role, turn.consumer, why)
                self._tell(turn.consumer, effect)
            case Renewed(consumer):
                if inbox := self._inboxes.get(consumer.grant):
                    inbox.is_renewed = True
                    inbox.changed.set()
            case Over(turn, why):
                _say("role %s: the turn of %s is over: %s", turn.role, turn.consumer, why)
                if not turn.consumer.is_forgotten and turn.role in turn.consumer.waiting:
                    self._tell(turn.consumer, Waiting(turn.role))
            case Bye(consumer, why):
                log.info("consumer %s is forgotten: %s", json.dumps(consumer.name), why)
                if inbox := self._inboxes.pop(consumer.grant, None):
                    self._end_inbox(inbox, why)
                self.heard_ms = max(self.heard_ms, consumer.heard_ms)
                self.member.presence.set()

    def _tell(self, consumer: Consumer, event: Granted | TurnLost | Waiting) -> None:
        if inbox := self._inboxes.get(consumer.grant):
            inbox.put(event)

    @staticmethod
    def _end_inbox(inbox: ServiceInbox, why: str) -> None:
        inbox.bye = inbox.bye or why
        inbox.changed.set()


def _say(text: str, role: str, consumer: Consumer, more: object) -> None:
    """Log a line, with names of clients only as JSON strings."""
    log.info(text, json.dumps(role), json.dumps(consumer.name), more)

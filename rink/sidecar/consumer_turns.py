"""Decide which consumer has the turn of a role, and until which time.

A role belongs to the member. The programs beside it are its consumers. One consumer at a time has
the turn of a role. This module is pure: callers pass the time in milliseconds of CLOCK_BOOTTIME,
and the service executes the effects that the calls leave.

    waiting     ─ the member is granted the role →            held
    held        ─ the member must give the role up →          lost
    held, lost  ─ the consumer answers, or the end passes →   over: the member releases the role

**A told end is a promise.** `until_ms` is at most `hold_ms` ahead, and never beyond the member's
deadline. The invariant of this file: a role is released only if its consumer has answered, or if
the `until_ms` of its turn has passed. An end never goes back. It counts as told once it is set,
even if the consumer has not read it. So only `_end` releases a told role, and each of its callers
has one of the two reasons.

An end is moved on while the consumer is alive. After a loss it is moved on as well, since the
consumer still works, until the consumer answers or `grace_ms` is over. Only the session of the
grant moves it on: after the end of that session, another member may hold the role. An end that has
passed is final, so every call first looks for passed ends.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

import attrs

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

MAX_STALE_ENTRIES = 64
"""The maximum number of stale entries of the schedule, in addition to one for each consumer."""


@attrs.define(eq=False)
class _Seat:
    """Hold a role's turn, the queue of its consumers, and the member's wait."""

    queue: dict[str, Consumer] = attrs.field(factory=dict)
    turn: Turn | None = None
    is_wanted: bool = False


class ConsumerTurns:
    """Keep the consumers of one sidecar and their turns.

    Args:
        hold_ms: the maximum time from now to an end that a consumer is told.
        grace_ms: the time after a loss for which the end is still moved on.
    """

    def __init__(self, hold_ms: int, grace_ms: int) -> None:
        self.hold_ms = hold_ms
        self.grace_ms = grace_ms
        self.consumers: dict[str, Consumer] = {}
        self._lease, self._deadline_ms = 0, 0
        self._seats: dict[str, _Seat] = {}
        self._effects: list[SidecarEffect] = []
        self._streams = 0
        # A heap of the times at which consumers are due. An entry is valid only if its time is its
        # consumer's `due_ms`; others are stale. The number orders entries of the same time.
        self._due: list[tuple[float, int, Consumer]] = []
        self._entries = 0

    # ── the state ────────────────────────────────────────────────────────────────────────────────

    @property
    def role_count(self) -> int:
        """Return the number of roles that all consumers have or wait for."""
        return sum(
            len(consumer.turns) + len(consumer.waiting) for consumer in self.consumers.values()
        )

    @property
    def wanted(self) -> list[str]:
        """Return the roles that the member must wait for."""
        return [role for role, seat in self._seats.items() if seat.is_wanted]

    def is_wanted(self, role: str) -> bool:
        """Return whether a consumer has a role, or waits for it and is present."""
        seat = self._seats.get(role)
        return seat is not None and (seat.is_wanted or seat.turn is not None)

    def turn(self, role: str) -> Turn | None:
        """Return the turn of a role, if there is one."""
        seat = self._seats.get(role)
        return seat.turn if seat else None

    def turns(self) -> Iterator[Turn]:
        """Yield every turn."""
        for consumer in self.consumers.values():
            yield from consumer.turns.values()

    def before(self, consumer: Consumer, role: str) -> str:
        """Return the name of the consumer whose turn comes before, or ""."""
        seat = self._seats[role]
        name = seat.turn.consumer.name if seat.turn else ""
        for other in seat.queue.values():
            if other is consumer:
                break
            name = other.name
        return name

    def take_effects(self) -> list[SidecarEffect]:
        """Return the effects since the last call."""
        effects, self._effects = self._effects, []
        return effects

    # ── calls of consumers ───────────────────────────────────────────────────────────────────────

    def hold(self, consumer: Consumer, roles: list[str], now_ms: int) -> None:
        """Add a consumer, which waits for its roles in this order."""
        self.consumers[consumer.grant] = consumer
        consumer.kept_ms = self.hold_ms if consumer.alive_ms is None else consumer.alive_ms
        consumer.heard(now_ms)
        for role in dict.fromkeys(roles):
            self._queue(consumer, role)
        self._schedule(consumer, now_ms)

    def open_stream(self, consumer: Consumer, now_ms: int) -> int:
        """Note a new stream in place of any earlier one, and return its number."""
        self._streams += 1
        consumer.stream, consumer.calls = self._streams, 0  # it answers the call that opened it
        self.renew(consumer, now_ms)
        return self._streams

    def close_stream(self, consumer: Consumer, stream: int, by_consumer: bool, now_ms: int) -> None:
        """Note that a stream is closed.

        The number of an earlier stream changes nothing. Only a close by the consumer can be an
        answer.
        """
        self._expire(consumer, now_ms)
        if consumer.is_forgotten or consumer.stream != stream:
            return
        consumer.stream, consumer.is_cut, consumer.heard_ms = None, True, now_ms
        if by_consumer and consumer.releases_on_close:
            self.release_all(consumer, "its stream was closed")
        elif not consumer.turns:
            self._forget(consumer, "its stream was closed")
        self._schedule(consumer, now_ms)

    def end_call(self, consumer: Consumer, now_ms: int, is_answered: bool = True) -> None:
        """Note that a call is over. Its answer is a sign of life.

        A call that its caller gave up is no sign of life. It is also no answer to the loss of a
        turn, since files and `role` may have shown the end of the turn.
        """
        consumer.calls -= 1
        if is_answered:
            self._hear(consumer, now_ms)
        else:
            consumer.is_cut = True
        self._schedule(consumer, now_ms)

    def renew(self, consumer: Consumer, now_ms: int) -> None:
        """Note a sign of life, and move the ends on."""
        self._expire(consumer, now_ms)
        if not consumer.is_forgotten:
            self._hear(consumer, now_ms)
            self._move_on(consumer, now_ms)
            self._schedule(consumer, now_ms)

    def release(self, consumer: Consumer, role: str, token: int | None, now_ms: int) -> bool:
        """Take a consumer's answer to a loss, or a role that it gives back.

        An answer to a loss with the token of its turn keeps the consumer in the queue. An answer
        without a token also ends the wait, since such an answer may come twice.

        Returns:
            False if another consumer has the turn, or if this consumer never had it.
        """
        self._expire(consumer, now_ms)
        turn, unanswered = consumer.turns.get(role), consumer.unanswered.get(role)
        is_lost = False
        if turn is not None and token in (None, turn.token):
            is_lost = turn.lost_at_ms is not None
            did = "answered the loss" if is_lost else "released the role"
            self._end(turn, f"the consumer {did}")
        elif unanswered is not None and token in (None, unanswered.token):
            is_lost = True
            del consumer.unanswered[role]
        elif token is not None and token > consumer.over.get(role, 0):
            return False
        elif role in consumer.waiting and token is None:
            self._unqueue(consumer, role)
            consumer.over.setdefault(role, 0)
        if consumer.is_forgotten:
            return role in consumer.over
        if is_lost and token is not None:
            self._queue(consumer, role)
        if not consumer.turns:  # so this moves no end on
            self._hear(consumer, now_ms)
        self._schedule(consumer, now_ms)
        return role in consumer.over

    def release_all(self, consumer: Consumer, why: str) -> None:
        """Note that a consumer has stopped all its work, and forget it."""
        for turn in list(consumer.turns.values()):
            self._end(turn, why)
        self._forget(consumer, why)

    # ── calls of the member ──────────────────────────────────────────────────────────────────────

    def session(self, lease: int, deadline_ms: int) -> None:
        """Note the member's live lease and its deadline, or 0 and 0."""
        self._lease, self._deadline_ms = lease, deadline_ms

    def granted(self, role: str, token: int, now_ms: int, is_held: bool = True) -> Turn | None:
        """Give a granted role to the first consumer that is present.

        `is_held` is True if the member still held the role after the session was noted. If not, the
        grant is of an earlier session, and the deadline does not apply to it.

        Returns:
            The turn, or None if no consumer wants the role any more. Then it is released.
        """
        seat = self._seats.get(role)
        assert seat is None or seat.turn is None, "a role has one consumer at a time"
        if seat is not None:
            seat.is_wanted = False
        for consumer in list(seat.queue.values()) if seat and is_held else ():
            until_ms = min(now_ms + self.hold_ms, self._deadline_ms)
            if not consumer.is_present(now_ms) or until_ms <= now_ms:
                continue
            assert seat is not None
            del seat.queue[consumer.grant], consumer.waiting[role]
            if not consumer.turns:
                consumer.moved_at_ms = now_ms
                if consumer.is_open:  # it did not have to renew while it only waited
                    consumer.heard_ms = now_ms
            turn = Turn(role, consumer, token, self._lease, until_ms)
            seat.turn = consumer.turns[role] = turn
            self._effects.append(Granted(turn))
            self._look_at(consumer, min(until_ms, consumer.moved_at_ms + self.hold_ms // 3))
            return turn
        # If no consumer is present, the member does not wait for the role. Otherwise it would be
        # granted the role again at once, and write its record each time.
        queue = seat.queue.values() if seat else ()
        self._let_go(role, any(consumer.is_present(now_ms) for consumer in queue))
        return None

    def lost(self, turn: Turn, why: str, now_ms: int) -> None:
        """Note that the member must give a role up."""
        if not turn.is_over and turn.lost_at_ms is None:
            turn.lost_at_ms, turn.why = now_ms, why
            self._effects.append(TurnLost(turn))

    def step(self, now_ms: int) -> int | None:
        """Move ends on, end turns whose end has passed, and forget consumers.

        Return the time of the next step, or None.
        """
        while self._due and self._due[0][0] <= now_ms:
            due_ms, _, consumer = heapq.heappop(self._due)
            if due_ms == consumer.due_ms:
                consumer.due_ms = math.inf
                self._look(consumer, now_ms)
        return max(now_ms + 1, math.ceil(self._due[0][0])) if self._due else None

    # ── steps of these calls ─────────────────────────────────────────────────────────────────────

    def _look(self, consumer: Consumer, now_ms: int) -> None:
        """Move the ends of a consumer on, or forget it, if this is due."""
        self._expire(consumer, now_ms)
        if consumer.is_forgotten:
            return
        if consumer.has_nothing:
            if now_ms >= consumer.heard_ms + self.hold_ms:
                self._forget(consumer, "it has no roles any more")
        elif not consumer.turns and not consumer.is_present(now_ms):
            self._forget(consumer, "it was not heard of in time")
        if consumer.is_forgotten:
            return
        is_due = now_ms >= consumer.moved_at_ms + self.hold_ms // 3
        if is_due and now_ms < consumer.alive_until_ms:
            self._move_on(consumer, now_ms)
        self._schedule(consumer, now_ms)

    def _schedule(self, consumer: Consumer, now_ms: int) -> None:
        """Schedule a consumer's next step: its next end, or its absence."""
        if consumer.is_forgotten:
            return
        due_ms = min([turn.until_ms for turn in consumer.turns.values()], default=math.inf)
        if consumer.turns and now_ms < consumer.alive_until_ms:
            due_ms = min(due_ms, consumer.moved_at_ms + self.hold_ms // 3)
        elif consumer.has_nothing:
            due_ms = consumer.heard_ms + self.hold_ms
        elif not consumer.turns:
            due_ms = max(now_ms, consumer.present_until_ms)
        self._look_at(consumer, due_ms)

    def _look_at(self, consumer: Consumer, due_ms: float) -> None:
        if due_ms < consumer.due_ms:
            consumer.due_ms = due_ms
            self._entries += 1
            heapq.heappush(self._due, (due_ms, self._entries, consumer))
        if len(self._due) > 2 * len(self.consumers) + MAX_STALE_ENTRIES:
            scheduled = (other for other in self.consumers.values() if other.due_ms < math.inf)
            self._due = [(other.due_ms, number, other) for number, other in enumerate(scheduled)]
            heapq.heapify(self._due)

    def _expire(self, consumer: Consumer, now_ms: int) -> None:
        """End the turns whose end has passed, since the consumer has stopped.

        A consumer that is no longer alive, or closed its stream, is forgotten. The loss is reported
        to other consumers, unless it was reported before. They wait for the role again once they
        have answered. The pod never answers, so it waits again at once.
        """
        passed = [turn for turn in consumer.turns.values() if now_ms >= turn.until_ms]
        if not passed:
            return
        for turn in passed:
            self._end(turn, "its end has passed without an answer")
            if consumer.is_pod:
                self._queue(consumer, turn.role)
                continue
            consumer.unanswered[turn.role] = turn
            if turn.lost_at_ms is None:
                turn.why = "its end has passed"
                self._effects.append(TurnLost(turn))
        if not consumer.turns and now_ms >= consumer.alive_until_ms:
            self._forget(consumer, "it was not heard of in time")

    def _move_on(self, consumer: Consumer, now_ms: int) -> None:
        """Move each end of a consumer as far ahead as it may be."""
        consumer.moved_at_ms = now_ms
        moved: list[Turn] = []
        for turn in consumer.turns.values():
            until_ms = self._next_end(turn, now_ms)
            if until_ms > turn.until_ms:
                turn.until_ms = until_ms
                moved.append(turn)
        if moved:
            self._effects.append(Renewed(consumer, tuple(moved)))

    def _next_end(self, turn: Turn, now_ms: int) -> int:
        if turn.lease != self._lease:
            return 0  # after the session of the grant, another member may hold the role
        until_ms = min(now_ms + self.hold_ms, self._deadline_ms)
        if turn.lost_at_ms is not None:
            return min(until_ms, turn.lost_at_ms + self.grace_ms)
        return until_ms

    def _end(self, turn: Turn, why: str) -> None:
        """End a turn, and release its role.

        The caller has the consumer's answer, or has seen the end pass.
        """
        turn.is_over = True
        turn.consumer.over[turn.role] = turn.token
        self._seats[turn.role].turn = None
        del turn.consumer.turns[turn.role]
        self._effects.append(Over(turn, why))
        self._let_go(turn.role)

    def _let_go(self, role: str, is_wanted: bool = True) -> None:
        """Release a role, and wait for it again if a consumer does."""
        self._effects.append(LetGo(role))
        seat = self._seats.get(role)
        if seat is None:
            return
        if not seat.queue:
            del self._seats[role]
        elif is_wanted:
            self._want(role, seat)

    def _want(self, role: str, seat: _Seat) -> None:
        if seat.turn is None and not seat.is_wanted:
            seat.is_wanted = True
            self._effects.append(Want(role))

    def _hear(self, consumer: Consumer, now_ms: int) -> None:
        """Note a sign of life, and want the consumer's roles again.

        The member did not wait for them while no consumer was present.
        """
        consumer.heard(now_ms)
        for role in consumer.waiting:
            self._want(role, self._seats[role])

    def _queue(self, consumer: Consumer, role: str) -> None:
        seat = self._seats.setdefault(role, _Seat())
        seat.queue[consumer.grant] = consumer
        consumer.waiting[role] = None
        self._want(role, seat)

    def _unqueue(self, consumer: Consumer, role: str) -> None:
        seat = self._seats[role]
        del seat.queue[consumer.grant], consumer.waiting[role]
        if seat.queue or seat.turn is not None:
            return
        if seat.is_wanted:
            self._effects.append(Unwant(role))
        del self._seats[role]

    def _forget(self, consumer: Consumer, why: str) -> None:
        for role in list(consumer.waiting):
            self._unqueue(consumer, role)
        consumer.is_forgotten = True
        del self.consumers[consumer.grant]
        self._effects.append(Bye(consumer, why))

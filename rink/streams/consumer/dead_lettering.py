"""Give up the events of one owner that fail or do not decode."""

from __future__ import annotations

import logging
from typing import Generic, NoReturn, TypeVar

from rink.plural import plural
from rink.streams.consumer.buffer import Buffer, Letter, StreamEntry
from rink.streams.consumer.circuit_breaker import CircuitBreaker
from rink.streams.failure_policy import Quarantined, Undecodable, letter_of
from rink.streams.processor import Processor
from rink.streams.store.values import PartitionPlace

R = TypeVar("R")
log = logging.getLogger("rink.streams")


class DeadLettering(Generic[R]):
    """Decode events, and give them up by the processor's policy.

    Attributes:
        verdict: why the partition must be quarantined, even if the processor catches this error.
    """

    def __init__(self, processor: Processor[R], place: PartitionPlace, buffer: Buffer) -> None:
        self.verdict: Quarantined | None = None
        self._processor = processor
        self._policy = processor.policy
        self._what = f"of {place.role!r}, processor {processor.name!r}"
        self._buffer = buffer
        self._breaker = CircuitBreaker(processor.policy.breaker)
        # The event that does not decode, and the time since which it waits for its verdict.
        self._waits: tuple[str, float] = ("", 0.0)

    def give_up(self, entry_id: str, letter: Letter) -> None:
        """Give an event up, or quarantine the partition, by the policy.

        Raises:
            Quarantined: the policy demands it, or too many events were given up.
        """
        if self._policy.on_error != "dead-letter":
            self._quarantine(entry_id, letter)
        if why := self._breaker.note(self._passed, f"event {entry_id}: {letter.error}"):
            self._quarantine(entry_id, letter, why)
        log.error("event %s %s becomes a dead letter: %s", entry_id, self._what, letter.error)
        self._buffer.mark_given_up(entry_id, letter)

    def raise_verdict(self) -> None:
        """Raise the verdict, if any; the processor may have caught it."""
        if self.verdict is not None:
            raise self.verdict

    def _quarantine(self, entry_id: str, letter: Letter, why: str = "") -> NoReturn:
        times = f"{letter.attempts} {plural(letter.attempts, 'time')}"
        reason = f"event {entry_id} {self._what}: {letter.error} ({times})"
        halts = self._policy.on_error == "halt"
        self.verdict = Quarantined(f"{reason}: {why}" if why else reason, halts=halts)
        raise self.verdict

    @property
    def _passed(self) -> int:
        """Return how many events are done or in flight."""
        return self._buffer.count_finished + len(self._buffer.in_hand)

    # ── records ──────────────────────────────────────────────────────────────────────────────

    def decode(self, entries: list[StreamEntry]) -> list[tuple[StreamEntry, R]]:
        """Decode entries up to the first that does not decode.

        The entries from there on are taken back.

        Raises:
            Undecodable: the first entry does not decode.
        """
        decode = self._processor.stream.decode
        decoded: list[tuple[StreamEntry, R]] = []
        try:
            for entry in entries:
                decoded.append((entry, decode(entry)))
        except Exception as error:  # any error of a codec is an error of this event
            if not decoded:
                raise Undecodable(entry, error) from error
            self._buffer.take_back(entry)
        return decoded

    def judge_undecodable(self, error: Undecodable, now: float) -> float | None:
        """Give up an event that does not decode, or wait for more events.

        If an event behind it decodes, the event itself is to blame. If as many events as the
        breaker allows do not decode, the program is to blame, as after a deploy with a new required
        field. Then the partition is quarantined before this event.

        Returns:
            The end of the wait, by the clock of `now`; None if the event was given up.

        Raises:
            Quarantined: the partition waits for an operator.
            Exception: a transient error of the codec.
        """
        entry, policy = error.entry, self._policy
        if policy.is_transient(error.error):
            raise error.error
        letter, wanted = letter_of(error.error, 1), self._witnesses()
        behind = self._buffer.behind(entry, wanted)
        if wanted and not any(map(self._does_decode, behind)):
            if len(behind) == wanted:
                events = f"{wanted} {plural(wanted, 'event')}"
                self._quarantine(entry.id, letter, f"decoding fails for the next {events}, too")
            if self._waits[0] != entry.id:
                self._waits = (entry.id, now)
            if now < (until := self._waits[1] + policy.retry_for):
                return until
        self.give_up(entry.id, letter)
        return None

    def _witnesses(self) -> int:
        """Return how many later events show whether the program is to blame.

        It is 0 if the breaker is off or trips anyway. It is also 0 if the processor has in-flight
        events, since it may commit them only when it gets more.
        """
        room = self._breaker.room(self._passed)
        if self._policy.on_error != "dead-letter" or room is None or self._buffer.in_hand:
            return 0
        return min(room, self._buffer.prefetch) - 1

    def _does_decode(self, entry: StreamEntry) -> bool:
        try:
            self._processor.stream.decode(entry)
        except Exception:
            return False
        return True

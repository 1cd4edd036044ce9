"""Write turns as JSON objects for consumers, and events as text.

Answers to requests show the time left until an end, counted from the moment of the answer. Pushed
events do not show it: a consumer may read them late, and then the time would be wrong.
"""

from __future__ import annotations

import json
from typing import Any

import attrs

from rink.sidecar.consumers import Consumer, Turn
from rink.sidecar.effects import Granted, TurnLost
from rink.sidecar.service import Service, ServiceInbox, Waiting


def turn_fields(turn: Turn, life: str) -> dict[str, Any]:
    """Return the fields of a turn that every answer and event has."""
    return {
        "role": turn.role,
        "token": turn.token,
        "grant": turn.consumer.grant,
        "state": "lost" if turn.is_lost else "held",
        "until_ms": turn.until_ms,
        "life": life,
    }


def answered(turn: Turn, life: str, now_ms: int) -> dict[str, Any]:
    """Return the fields of a turn in an answer to a request."""
    left_ms = max(0, turn.until_ms - now_ms)
    fields = {**turn_fields(turn, life), "now_ms": now_ms, "left_ms": left_ms}
    return {**fields, "why": turn.why} if turn.why else fields


def consumer_fields(service: Service, consumer: Consumer) -> dict[str, Any]:
    """Return the answer to a hold or a renewal."""
    now = service.clock()
    turns = (*consumer.turns.values(), *consumer.unanswered.values())
    return {
        "grant": consumer.grant,
        "life": service.life,
        "now_ms": now,
        "held": [answered(turn, service.life, now) for turn in turns],
        "waiting": [waiting_fields(service, consumer, role) for role in consumer.waiting],
    }


def waiting_fields(service: Service, consumer: Consumer, role: str) -> dict[str, Any]:
    """Return the fields of a role that a consumer waits for."""
    before = service.turns.before(consumer, role)
    behind = f"consumer {before} of this sidecar" if before else service.member.obstacle(role)
    return {"role": role, "behind": behind}


@attrs.define
class EventWriter:
    """Write the events of one stream, each with an id `life:number`."""

    _service: Service
    _consumer: Consumer
    _number: int = 0
    _behind: dict[str, str] = attrs.field(factory=dict)
    is_idle: bool = False
    """True if the stream was silent for long. Then changed waits are written again."""

    def take(self, inbox: ServiceInbox) -> bytes:
        """Return all events of an inbox, with the present state of their turns."""
        parts: list[str] = []
        life, consumer = self._service.life, self._consumer
        if self.is_idle:
            self.is_idle = False
            parts.append(": idle\n\n")
            parts += [part for role in consumer.waiting for part in self._waiting(role)]
        while inbox.events:
            event = inbox.events.popleft()
            if isinstance(event, Waiting):
                self._behind.pop(event.role, None)
                parts += self._waiting(event.role)
                continue
            turn = event.turn
            is_unanswered = consumer.unanswered.get(turn.role) is turn
            if isinstance(event, Granted) and not turn.is_over:
                parts.append(self._event("granted", turn_fields(turn, life)))
            elif isinstance(event, TurnLost) and (is_unanswered or not turn.is_over):
                fields = {**turn_fields(turn, life), "why": turn.why}
                parts.append(self._event("lost", fields))
        if inbox.is_renewed:
            inbox.is_renewed = False
            parts += self._renewed()
        if inbox.bye:
            parts.append(self._event("bye", {"why": inbox.bye, "life": life}))
        return "".join(parts).encode()

    def _waiting(self, role: str) -> list[str]:
        """Write that the consumer waits for a role, if the reason has changed."""
        if role not in self._consumer.waiting:
            return []
        fields = waiting_fields(self._service, self._consumer, role)
        if self._behind.get(role) == fields["behind"]:
            return []
        self._behind[role] = fields["behind"]
        return [self._event("waiting", {**fields, "grant": self._consumer.grant})]

    def _renewed(self) -> list[str]:
        """Write one event for each new end, with the roles that have it."""
        ends: dict[int, list[str]] = {}
        for turn in self._consumer.turns.values():
            ends.setdefault(turn.until_ms, []).append(turn.role)
        grant, life = self._consumer.grant, self._service.life
        return [
            self._event("renewed", {"grant": grant, "until_ms": end, "roles": roles, "life": life})
            for end, roles in ends.items()
        ]

    def _event(self, kind: str, fields: dict[str, Any]) -> str:
        self._number += 1
        data = json.dumps(fields, separators=(",", ":"))
        return f"id: {self._service.life}:{self._number}\nevent: {kind}\ndata: {data}\n\n"

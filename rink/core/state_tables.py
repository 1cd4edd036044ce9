"""Define the three machines of a member as data: life, lease, record.

Two rules about this file:

* Only the transitions of a table exist. `advance` refuses all others, so an event in a state that
  does not expect it is a bug that shows at once.
* Only states live here. The data of a state (a lease id, a deadline, a compare) is kept by the
  module that drives the machine: `rink.core.lease` for the lease, `rink.core.record_writer` for the
  record, `rink.core.lifecycle` for the life.

`docs/internals/machines.md` is drawn from these tables.

How the machines meet: a role is granted only while the life is ACTIVE, OFFERING or LEAVING, the
lease ALIVE and the record SETTLED. Three states of the life wait for another machine. JOINING waits
for the record to be SETTLED, and REVOKING for the lease to be NONE. RUNNING_OUT waits a second at
most for the record to be SETTLED, and ends with the lease NONE here and alive in etcd.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar

S = TypeVar("S", bound=enum.Enum)
E = TypeVar("E", bound=enum.Enum)


class Life(enum.Enum):
    """Name the states of a member between join and leave."""

    JOINING = "joining"
    ACTIVE = "active"
    OFFERING = "offering"
    LEAVING = "leaving"
    LETTING_GO = "letting go"
    RUNNING_OUT = "running out"
    REVOKING = "revoking"
    LEFT = "left"
    RAN_OUT = "run out"


class LifeEvent(enum.Enum):
    """Name the events that change a member's life."""

    JOINED = "joined"
    GAVE_UP = "join given up"
    OFFER = "leave asked, with a handover_wait"
    LEAVE = "leave asked, or handover_wait over"
    STOP = "leave at once"
    UNRANKED = "no longer ranked, or nobody will take over"
    RELEASED = "every handle released or given up"
    OVERRUN = "handles still held after leave_timeout"
    ENDED = "lease ended"
    RUN_OUT = "renewed no more"


LIFE: Mapping[Life, Mapping[LifeEvent, Life]] = {
    Life.JOINING: {
        LifeEvent.JOINED: Life.ACTIVE,
        LifeEvent.GAVE_UP: Life.LETTING_GO,
        LifeEvent.LEAVE: Life.LETTING_GO,
        LifeEvent.STOP: Life.LETTING_GO,
    },
    Life.ACTIVE: {
        LifeEvent.OFFER: Life.OFFERING,
        LifeEvent.LEAVE: Life.LEAVING,
        LifeEvent.STOP: Life.LETTING_GO,
    },
    # The record has the phase `offering`. Roles go on until another member takes the rank.
    Life.OFFERING: {
        LifeEvent.UNRANKED: Life.LETTING_GO,
        LifeEvent.LEAVE: Life.LEAVING,
        LifeEvent.STOP: Life.LETTING_GO,
    },
    # The record has the phase `leaving`. Roles go on until a version without this member comes. A
    # second, more urgent leave stops them at once.
    Life.LEAVING: {LifeEvent.UNRANKED: Life.LETTING_GO, LifeEvent.STOP: Life.LETTING_GO},
    # Every role is lost. The claims stay until user code releases them, or its time is over.
    Life.LETTING_GO: {LifeEvent.RELEASED: Life.REVOKING, LifeEvent.OVERRUN: Life.RUNNING_OUT},
    # The last record claims the unreleased roles. Its lease is not revoked, and ends by itself.
    Life.RUNNING_OUT: {LifeEvent.RELEASED: Life.REVOKING, LifeEvent.RUN_OUT: Life.RAN_OUT},
    Life.REVOKING: {LifeEvent.ENDED: Life.LEFT},
    Life.LEFT: {},
    Life.RAN_OUT: {},
}


class LeaseState(enum.Enum):
    """Name the states of the lease, as far as they are known."""

    NONE = "none"
    ASKED = "asked"
    ALIVE = "alive"
    SUSPECT = "suspect"
    REVOKING = "revoking"


class LeaseEvent(enum.Enum):
    """Name the events that change the lease."""

    ASK = "grant asked"
    FAILED = "grant not answered"
    GRANTED = "granted"
    DEADLINE = "deadline passed"
    RENEWED = "keepalive answered"
    ENDED = "TTL 0"
    DISOWN = "record gone, or leaving"
    ABANDON = "left to run out"
    REVOKED = "revocation answered"


LEASE: Mapping[LeaseState, Mapping[LeaseEvent, LeaseState]] = {
    LeaseState.NONE: {LeaseEvent.ASK: LeaseState.ASKED},
    LeaseState.ASKED: {LeaseEvent.GRANTED: LeaseState.ALIVE, LeaseEvent.FAILED: LeaseState.NONE},
    LeaseState.ALIVE: {
        LeaseEvent.RENEWED: LeaseState.ALIVE,
        LeaseEvent.DEADLINE: LeaseState.SUSPECT,
        LeaseEvent.ENDED: LeaseState.NONE,
        LeaseEvent.ABANDON: LeaseState.NONE,
        LeaseEvent.DISOWN: LeaseState.REVOKING,
    },
    # Every role is lost. The lease is still renewed. A new one is taken only after its end (R7).
    LeaseState.SUSPECT: {
        LeaseEvent.RENEWED: LeaseState.ALIVE,
        LeaseEvent.ENDED: LeaseState.NONE,
        LeaseEvent.ABANDON: LeaseState.NONE,
        LeaseEvent.DISOWN: LeaseState.REVOKING,
    },
    # A create whose answer was lost may still be applied under this lease. So its end comes first,
    # and a new lease after it.
    LeaseState.REVOKING: {LeaseEvent.REVOKED: LeaseState.NONE, LeaseEvent.ENDED: LeaseState.NONE},
}


class Write(enum.Enum):
    """Name the states of this member's record in etcd."""

    ABSENT = "absent"
    SENT = "sent"
    OWED = "owed"
    SETTLED = "settled"
    TAKEN = "taken"


class WriteEvent(enum.Enum):
    """Name the events that change this member's record."""

    SEND = "transaction sent"
    NO_ANSWER = "ended without an answer"
    ANSWERED = "answered, the record is ours"
    FOREIGN = "answered, the name is taken"
    MISSING = "answered, the record is gone"
    FREED = "the other record is gone"


WRITE: Mapping[Write, Mapping[WriteEvent, Write]] = {
    Write.ABSENT: {WriteEvent.SEND: Write.SENT},
    # The write is unsettled. Only an answer settles it (R1), and a retry has the same compare.
    Write.SENT: {
        WriteEvent.ANSWERED: Write.SETTLED,
        WriteEvent.NO_ANSWER: Write.OWED,
        WriteEvent.FOREIGN: Write.TAKEN,
        WriteEvent.MISSING: Write.ABSENT,
    },
    Write.OWED: {WriteEvent.SEND: Write.SENT},
    Write.SETTLED: {WriteEvent.SEND: Write.SENT},
    Write.TAKEN: {WriteEvent.FREED: Write.ABSENT},
}


def advance(table: Mapping[S, Mapping[E, S]], state: S, event: E) -> S:
    """Return the next state, or raise LookupError without such a transition."""
    try:
        return table[state][event]
    except KeyError:
        raise LookupError(f"{event} in {state}") from None

"""Step the core, after every scheme was called without the lock (R2)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection

import attrs

from rink.core import effects as do
from rink.core.claims import closed
from rink.core.effects import Effect
from rink.core.events import MemberEvent
from rink.core.holds import Hold
from rink.core.member import Node
from rink.core.record_index import SchemeSize
from rink.engine.callbacks import Callbacks
from rink.engine.clock import Clock
from rink.engine.step_queue import StepQueue

MAX_PLACINGS = 2
"""Largest number of placings before a step leaves out the roles that callers added meanwhile."""

step_queue = StepQueue()


@attrs.frozen
class OwnStep:
    """Describe the first half of a step: its effects, and what must follow.

    Another step must follow for the awaited roles that are `unplaced`. Subscribers must be notified
    of a step that `changed` something.
    """

    effects: list[Effect]
    granted: list[Hold]
    unplaced: Collection[str]
    changed: bool


class Stepper:
    """Step the node of one member, on its engine's thread.

    A scheme may be a user's function, which may take long or call the library. So no scheme is
    called under the lock. The roles are placed first. Then one hold of the lock checks that no
    placement is missing, steps, and publishes.
    """

    def __init__(
        self, node: Node, lock: threading.RLock, clock: Clock, callbacks: Callbacks
    ) -> None:
        self._node = node
        self._lock = lock
        self._clock = clock
        self._callbacks = callbacks
        self._pairs: frozenset[SchemeSize] = frozenset()

    def step_own(self, events: list[MemberEvent]) -> OwnStep:
        """Make the step of this member, whose effects others wait for."""
        # Invariant: in the hold of the lock that steps, each role is placed or in `unplaced`. Roles
        # are placed without the lock, so callers may add others meanwhile. Then the loop places
        # again. After MAX_PLACINGS rounds it leaves out awaited roles that are new, and closes the
        # gate, so no caller can take a new role. So the loop ends.
        node = self._node
        prefetch = node.prefetch(events)
        for placings in itertools.count():
            with step_queue.turn(), self._lock:
                missing = node.placing.missing(prefetch, node.table, node.placement)
                unplaced = set[str]()
                if placings >= MAX_PLACINGS and missing:
                    served = node.table.held.keys() | node.table.lost.keys()
                    unplaced = {role for role, _, _ in missing} - served
                    missing = [placing for placing in missing if placing[0] not in unplaced]
                if not missing:
                    step = self._step_placed(events, unplaced)
                    break
                if placings >= MAX_PLACINGS:
                    node.table.gate = closed("the group is changing")
            for role, scheme, size in missing:
                node.placement.rank(role, scheme, size, bounded=False)
        if prefetch.pairs != self._pairs:
            self._pairs = prefetch.pairs
            node.placement.forget_all_but(prefetch.pairs)
        return step

    def _step_placed(self, events: list[MemberEvent], unplaced: set[str]) -> OwnStep:
        """Step the core, in the hold of the lock that found all roles placed."""
        node, table = self._node, self._node.table
        gate = table.gate
        node.placing.done(table, set(unplaced))
        effects = node.step_own(self._clock.now(), events, unplaced)
        granted = _holds_of(effects)
        self._callbacks.granted(granted)  # under the lock: before a loss can be posted
        node.placement.trim(lambda: table.roles)
        changed = bool(effects or events) or gate is not table.gate
        return OwnStep(effects, granted, unplaced, changed)

    def step_group(self, unplaced: Collection[str]) -> list[Effect]:
        """Make the step of this member's work for its group."""
        with step_queue.turn(), self._lock:
            return self._node.step_group(self._clock.now(), unplaced)


def _holds_of(effects: list[Effect]) -> list[Hold]:
    """Return the granted holds in order, once each: handles may share one."""
    holds = [effect.handle.hold for effect in effects if isinstance(effect, do.Grant)]
    return [hold for hold in dict.fromkeys(holds) if hold is not None]

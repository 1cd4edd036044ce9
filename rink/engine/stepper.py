"""Step the core, with every scheme asked before the lock is taken (R2)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection

import attrs

from rink.core import effects as do
from rink.core.claims import closed
from rink.core.effects import Effect
from rink.core.events import Event
from rink.core.holds import Hold
from rink.core.member import Node
from rink.core.record_index import Pair
from rink.engine.callbacks import Callbacks
from rink.engine.clock import Clock
from rink.engine.step_queue import StepQueue

MAX_PLACINGS = 2
"""How often a step places roles before it goes on without those that callers have added since."""

_turns = StepQueue()


@attrs.frozen
class OwnStep:
    """Describe the first half of a step: its effects, and what must follow."""

    effects: list[Effect]
    granted: list[Hold]
    unplaced: Collection[str]
    """The awaited roles that were left out; another step is to follow."""
    changed: bool
    """Whether anybody who follows the group has something to look at."""


class Stepper:
    """Step the node of one member, on its engine's thread.

    A scheme may be a user's function, and take long or call the library. So no scheme is asked
    under the lock. The roles are placed first. Then one hold of the lock checks that none is
    missing, steps, and publishes.
    """

    def __init__(
        self, node: Node, lock: threading.RLock, clock: Clock, callbacks: Callbacks
    ) -> None:
        self._node = node
        self._lock = lock
        self._clock = clock
        self._callbacks = callbacks
        self._pairs: frozenset[Pair] = frozenset()

    def step_own(self, events: list[Event]) -> OwnStep:
        """Step the first half: what others wait for."""
        node = self._node
        prefetch = node.prefetch(events)
        for placings in itertools.count():
            with _turns.taken(), self._lock:
                missing = node.placing.missing(prefetch, node.table, node.placement)
                unplaced = set[str]()
                if placings >= MAX_PLACINGS and missing:
                    # Callers go on asking for roles. They must not keep the engine from its step.
                    served = node.table.held.keys() | node.table.lost.keys()
                    unplaced = {role for role, _, _ in missing} - served
                    missing = [one for one in missing if one[0] not in unplaced]
                if not missing:
                    step = self._step_placed(events, unplaced)
                    break
                if placings >= MAX_PLACINGS:  # nor may callers that take roles
                    node.table.gate = closed("the group is changing")
            for role, scheme, size in missing:
                node.placement.rank(role, scheme, size, bounded=False)
        if prefetch.pairs != self._pairs:
            self._pairs = prefetch.pairs
            node.placement.forget_all_but(prefetch.pairs)
        return step

    def _step_placed(self, events: list[Event], unplaced: set[str]) -> OwnStep:
        """Step. The lock was held since every role but `unplaced` was seen placed."""
        node, table = self._node, self._node.table
        gate = table.gate
        node.placing.done(table, set(unplaced))
        effects = node.step_own(self._clock.now(), events, unplaced)
        granted = _holds_of(effects)
        self._callbacks.granted(granted)  # before a loss of these can be told
        node.placement.trim(lambda: table.roles)
        changed = bool(effects or events) or gate is not table.gate
        return OwnStep(effects, granted, unplaced, changed)

    def step_group(self, unplaced: Collection[str]) -> list[Effect]:
        """Step the second half: what the member does for its group."""
        with _turns.taken(), self._lock:
            return self._node.step_group(self._clock.now(), unplaced)


def _holds_of(effects: list[Effect]) -> list[Hold]:
    """Return the granted holds in order, without duplicates.

    Several handles may share one.
    """
    holds = [effect.handle.hold for effect in effects if isinstance(effect, do.Grant)]
    return [hold for hold in dict.fromkeys(holds) if hold is not None]


def begin_turns_anew() -> None:
    """Begin the turns of all engines anew in a forked child."""
    _turns.begin_anew()

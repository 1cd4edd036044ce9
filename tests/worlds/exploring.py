"""Explore a whole world, breadth first.

A broken rule is reported by the shortest way to it. Each state is checked, and then left to itself
without faults (`Calm`): the group must settle, and every wait of an owner must end.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Iterator

import attrs
from actors import Facts
from moves import moves
from rules import BrokenRuleError, check_state
from spec import Spec
from states import DEAD, One, State, with_one, without
from universe import Universe

from rink.core.member_record import Phase
from rink.core.state_tables import Life

PATIENCE = 500
"""How many moves a world without faults may take to settle."""

EVERY = 20_000


@attrs.frozen
class Result:
    """Hold the result of exploring a world."""

    name: str
    states: int
    moves: int
    seconds: float
    steps: int
    broken: str = ""
    trace: tuple[str, ...] = ()
    is_whole: bool = True


class Numbers(dict[tuple, int]):
    """Number the parts of states, each at its first use.

    `parts` leads back.
    """

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[tuple] = []

    def __missing__(self, part: tuple) -> int:
        number = self[part] = len(self.parts)
        self.parts.append(part)
        return number


class Codes:
    """Encode states as flat tuples of small numbers.

    They take a tenth of the memory, and are quick to look up.
    """

    def __init__(self) -> None:
        self._numbers = Numbers()

    def of(self, state: State) -> tuple[int, ...]:
        """Return the code of a state."""
        etcd, members, late, tokens, script, *rest = state
        return (etcd, script, *map(self._numbers.__getitem__, (late, tokens, (*rest,), *members)))

    def state(self, code: tuple[int, ...]) -> State:
        """Return the state of a code."""
        etcd, script, *numbers = code
        late, tokens, rest, *members = map(self._numbers.parts.__getitem__, numbers)
        return State(etcd, tuple(members), late, tokens, script, *rest)


class Calm:
    """Let a world go on without faults.

    Everything arrives, user code lets go, and time passes.
    """

    def __init__(self, universe: Universe, codes: Codes) -> None:
        self._universe = universe
        self._codes = codes
        self._good: set[tuple[int, ...]] = set()

    def check(self, state: State) -> None:
        """Leave a checked state to itself, and check that everybody comes to rest."""
        path = []
        for one in self._way_from(state):
            if (code := self._codes.of(one)) in self._good:
                break
            if path:
                check_state(self._universe, one)
            path.append(code)
        self._good.update(path)

    def settle(self, state: State) -> State:
        """Return the state in which everybody has come to rest."""
        *_, last = self._way_from(state)
        return last

    def _way_from(self, state: State) -> Iterator[State]:
        """Yield a state and its successors until all waits have ended."""
        for _ in range(PATIENCE):
            yield state
            after = self.next(state)
            if after is None:
                return
            state = after
        raise BrokenRuleError(f"a wait does not end: {self._why_not(state)}")

    def next(self, state: State) -> State | None:
        """Return what comes next, None where all waits have ended."""
        if state.late:
            (index, request), rest = state.late[0], state._replace(late=state.late[1:])
            return self._universe.serve(rest, index, request)[0]
        for index, one in enumerate(state.members):
            after = self._message(state, index, one) or self._own_move(state, index, one)
            if after is not None:
                return after
        return self._end_orphan(state) or self._pass_time(state)

    def _message(self, state: State, index: int, one: One) -> State | None:
        universe = self._universe
        if one.requests:
            request = one.requests[0]
            rest = with_one(state, index, one._replace(requests=one.requests[1:]))
            served, answer = universe.serve(rest, index, request)
            return universe.answer(served, index, answer)
        if universe.is_out(state, index):
            return None
        if one.answers:
            rest = with_one(state, index, one._replace(answers=without(one.answers, 0)))
            return universe.act(rest, index, "step", one.answers[0])
        if one.changes is None:
            return universe.list(state, index)
        return universe.see(state, index, len(one.changes)) if one.changes else None

    def _own_move(self, state: State, index: int, one: One) -> State | None:
        universe = self._universe
        if universe.is_out(state, index):
            return None
        facts = universe.actors[index].facts[one.state]
        if facts.is_midway:
            return universe.act(state, index, "finish")
        leases = universe.stores.contents[state.etcd].leases
        if facts.is_known and facts.lease not in leases:
            return universe.told(state, index)
        if facts.is_suspect:
            return universe.act(state, index, "renew")
        for role in facts.to_release:
            return universe.act(state, index, "release", role)
        for role in facts.looked:
            return universe.act(state, index, "take", role)
        return universe.act(state, index, "nudge") if facts.nudged else None

    def _end_orphan(self, state: State) -> State | None:
        """Make etcd end a lease that nobody renews.

        The lease of a leaving member ends only once the others are ranked: its record bars nobody
        from coordinating.
        """
        universe = self._universe
        contents = universe.stores.contents[state.etcd]
        for name, found in contents.records.items():
            if name not in universe.spec.names or not universe.is_orphan(state, name, found.lease):
                continue
            if found.record.phase is Phase.LEAVING and self._unranked(state):
                continue
            done = universe.stores.end_lease(state.etcd, found.lease)
            return universe.changed(state, done)[0]
        return None

    def _pass_time(self, state: State) -> State | None:
        if not self._why_not(state):
            return None
        universe, alarms = self._universe, []
        living = [at for at in range(len(state.members)) if not universe.is_out(state, at)]
        for index in living:
            alarm_in = universe.actors[index].facts[state.members[index].state].alarm_in
            if alarm_in is not None:
                alarms.append(alarm_in)
        if not alarms:
            raise BrokenRuleError(f"nobody would ever wake again: {self._why_not(state)}")
        for index in living:
            state = universe.act(state, index, "rest", max(0.0, min(alarms)))
        return state

    # Each check holds for the state as a whole, so their order decides only which fault is named. A
    # state is at rest only if none applies: members first, then records, ranks and requests.
    def _why_not(self, state: State) -> str:
        """Return what has not come to rest yet, or an empty string."""
        universe = self._universe
        contents = universe.stores.contents[state.etcd]
        for index, one in enumerate(state.members):
            name = universe.spec.names[index]
            if universe.is_out(state, index):
                continue
            facts = universe.actors[index].facts[one.state]
            if self._has_a_twin(state, index, facts):
                continue
            if facts.life is not Life.ACTIVE:
                return f"{name} is {facts.life.value}"
            if not universe.covers(state, index, facts.lease):
                return f"{name} has no record"
            if not facts.is_settled:
                return f"{name} sees no settled group"
            for role in facts.waits:
                if universe.owner(state, role) == name:
                    return f"{name} waits for {role}, which it owns"
        serving = self._serving(state)
        dead = [n for n, found in contents.records.items() if found.lease not in contents.leases]
        if serving and dead:
            return f"nobody keeps the records of {dead}, and nobody removes them"
        if unranked := self._unranked(state):
            return unranked
        has_requests = serving and contents.requests and not universe.spec.has_outsider
        return f"requests that are not answered: {contents.requests}" if has_requests else ""

    def _serving(self, state: State) -> list[str]:
        """Return the names of the active members that have a record."""
        universe, serving = self._universe, []
        for index, one in enumerate(state.members):
            if one.state == DEAD:
                continue
            facts = universe.actors[index].facts[one.state]
            if facts.life is Life.ACTIVE and universe.covers(state, index, facts.lease):
                serving.append(universe.spec.names[index])
        return sorted(serving)

    def _unranked(self, state: State) -> str:
        """Return how the ranks differ from who serves, or an empty string."""
        serving = self._serving(state)
        version = self._universe.stores.contents[state.etcd].version
        ranked = sorted(version.ranks) if version else []
        if self._universe.spec.has_outsider or not serving or ranked == serving:
            return ""
        return f"{serving} are there, and {ranked} are ranked"

    def _has_a_twin(self, state: State, index: int, facts: Facts) -> bool:
        """Return whether a member rightly waits for its name.

        Another living process has the name (R8).
        """
        universe = self._universe
        return facts.waits_for_name and any(
            other.state != DEAD
            and at != index
            and universe.spec.names[at] == universe.spec.names[index]
            and universe.covers(state, at, universe.actors[at].facts[other.state].lease)
            for at, other in enumerate(state.members)
        )


@attrs.define(eq=False)
class Exploration:
    """Explore one world."""

    universe: Universe
    codes: Codes = attrs.field(factory=Codes)
    calm: Calm = attrs.field(init=False)
    came_from: dict[tuple, tuple[tuple, str] | None] = attrs.field(factory=dict)
    moves: int = 0

    def __attrs_post_init__(self) -> None:
        self.calm = Calm(self.universe, self.codes)

    def begin(self) -> State:
        """Return the settled state that a world begins in."""
        universe, spec = self.universe, self.universe.spec
        state = universe.empty()
        for index, name in enumerate(spec.members):
            if name not in (*spec.late_joiners, *spec.fresh):
                state = self.calm.settle(universe.start(state, index))
        for index, name in enumerate(spec.members):
            if name in spec.late_joiners:
                state = universe.start(state, index)
        return state

    def go(self, most: int, progress: Callable[[int, int], None] | None = None) -> Result:
        """Visit every state, or as many as `most`.

        Stop at the first state that breaks a rule.
        """
        began = time.perf_counter()
        gc.disable()  # millions of tuples, none in a cycle: looking for one takes half of the time
        code = self.codes.of(self.begin())
        self.came_from[code] = None
        todo = deque([code])
        broken, trace, label = "", (), ""
        try:
            while todo and len(self.came_from) < most:
                code, label = todo.popleft(), "and then"
                state = self.codes.state(code)
                self.calm.check(state)
                if self._is_far_enough(state):
                    continue
                for label, after in moves(self.universe, state):
                    self.moves += 1
                    next_code = self.codes.of(after)
                    if next_code not in self.came_from:
                        self.came_from[next_code] = code, label
                        check_state(self.universe, after)
                        todo.append(next_code)
                        if progress is not None and not len(self.came_from) % EVERY:
                            progress(len(self.came_from), len(todo))
        except (AssertionError, LookupError) as error:
            broken = f"{type(error).__name__}: {error}"
            trace = (*self.way_to(code), f"(last: {label})")
        finally:
            gc.enable()
        seconds = time.perf_counter() - began
        steps = sum(len(actors.facts) for actors in self.universe.actors)
        name = self.universe.spec.name
        return Result(
            name, len(self.came_from), self.moves, seconds, steps, broken, trace, not todo
        )

    def _is_far_enough(self, state: State) -> bool:
        """Return whether the members have proclaimed enough versions.

        The world sets their number.
        """
        most = self.universe.spec.versions
        return most > 0 and self.universe.stores.contents[state.etcd].number >= most

    def way_to(self, code: tuple) -> tuple[str, ...]:
        """Return what happened, from the beginning."""
        labels = []
        while (came := self.came_from[code]) is not None:
            code, label = came
            labels.append(label)
        return tuple(reversed(labels))


def explore(
    spec: Spec, most: int = 10_000_000, progress: Callable[[int, int], None] | None = None
) -> Result:
    """Go through a world."""
    return Exploration(Universe(spec)).go(most, progress)

"""Judge one run of a fault: programs, their writes, and the verdict."""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections import Counter
from typing import Any

import attrs
from wire import Wire

from rink.core.schemes import rank_of
from rink.engine.clock import SYSTEM
from rink.testing.history import History, HistoryEvent, Judgement, What, judge
from safety.running import Program, Programs, Sidecar

SETTLE_TIMEOUT_S = 120.0
"""Long: sidecars that start on a machine with much other work may take half a minute."""


AFTER_S = 1e-6


@attrs.frozen
class Write:
    """Hold one write to the unguarded resource, which accepts all.

    `checked` is when the program last compared its end `until` with the clock before it.
    """

    who: str
    role: str
    token: int
    at: float
    until: float
    checked: float


class Resources:
    """Hold a guarded and an unguarded resource.

    Each write goes to both in one step.

    The guarded one refuses a token below the greatest that it has seen. It is one thread's, so the
    order of writes is known.
    """

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.events: list[HistoryEvent] = []
        self._greatest: dict[str, int] = {}

    def write(self, who: str, role: str, token: int, until: float, checked: float) -> bool:
        """Return whether the guarded resource accepted the write."""
        at = SYSTEM.now()
        self.writes.append(Write(who, role, token, at, until, checked))
        is_accepted = token >= self._greatest.get(role, 0)
        if is_accepted:
            self._greatest[role] = token
        what = "accepted" if is_accepted else "refused"
        self.events.append(HistoryEvent(what, who, at, role, token))
        return is_accepted


@attrs.frozen(kw_only=True)
class Verdict:
    """Hold the result of one run.

    Attributes:
        fault: the name of the fault.
        seed: the seed of the run.
        problems: all forbidden events, in words.
        accepted: writes that the guard accepted.
        refused: stale writes that the guard refused.
        stale: stale writes that the guard accepted.
        overlaps: turns that overlapped, and writes to the unguarded resource that came after a
            write of a later turn, although their own told end had not passed.
        stopped: such writes of a program that was frozen between its check and the write.
        late: such writes after the told end, of a program that was not frozen: the machine was
            slower than the time that a write may take.
        grants: the number of grants.
        gap: the longest time in which nobody held a role, in seconds.
    """

    fault: str
    seed: str
    problems: tuple[str, ...]
    accepted: int
    refused: int
    stale: int
    overlaps: int
    stopped: int
    late: int
    grants: int
    gap: float
    seconds: float


class Stage:
    """Run two programs on each of two sidecars.

    All of them want the same two roles.

    Args:
        programs: forks the programs.
        sidecars: the two sidecars.
        seed: the seed of all random choices.
        number: the number of the run, for the names of its roles.
        settings: settings of programs: `wired` (each has a proxy of its own), `reopens` (its
            connection is closed while it works), `alive` (to choose from), `consumer` (the name of
            all), and `obedient` (the number of programs that obey http_proxy, which is set for
            all).
        proxy: the URL of a proxy that answers nonsense.
    """

    def __init__(
        self,
        programs: Programs,
        sidecars: list[Sidecar],
        seed: str,
        number: int,
        settings: dict[str, Any],
        proxy: str,
    ) -> None:
        self.random = random.Random(seed)
        self.history = History()
        self.resources = Resources()
        self.sidecars = sidecars
        self.programs: list[Program] = []
        self.problems: list[str] = []
        self.wires: dict[str, Wire] = {}
        self._programs = programs
        self._settings, self._proxy = settings, proxy
        self._given: dict[str, tuple[Sidecar, dict[str, Any]]] = {}
        self._threads: list[threading.Thread] = []
        self._ends: dict[tuple[str, str, int], float] = {}
        """The end of each turn, as far as its program has told."""
        names = (f"r{number}-{index}" for index in range(100))
        by_rank: dict[int, str] = {}
        for name in names:
            by_rank.setdefault(rank_of(name, 2), name)
        self.roles = sorted(by_rank.values())
        self.since = 0.0

    # ── programs ─────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Start all programs, and wait until both sidecars serve a role."""
        for sidecar in self.sidecars:
            for number in (1, 2):
                self._start(sidecar, f"{sidecar.name}{number}", self._drawn(sidecar, number))
        self.history.wait(lambda h: self._sides(h) == {0, 1}, SETTLE_TIMEOUT_S)

    def _drawn(self, sidecar: Sidecar, number: int) -> dict[str, Any]:
        """Draw the settings of a program."""
        given = self._settings
        who = f"{sidecar.name}{number}"
        url = sidecar.endpoint
        if given.get("wired"):
            self.wires[who] = Wire(url)
            url = self.wires[who].endpoint
        cuts = given.get("wired") or given.get("reopens")
        drawn = {
            "url": url,
            "host": sidecar.endpoint.removeprefix("http://"),
            "roles": self.random.sample(self.roles, 2),
            "consumer": given.get("consumer", who),
            "alive": self.random.choice(given.get("alive", [None, 1.0])),
            # A connection that others may close is no sign that the work has ended.
            "on_close": "keep" if cuts else self.random.choice(["keep", "release"]),
            "resumes": self.random.random() < 0.5,
            "obstinate": False,
            "obeys_proxy": False,
            "env": {},
            "seed": self.random.random(),
        }
        if "obedient" in given:
            drawn["env"] = {"http_proxy": self._proxy, "HTTP_PROXY": self._proxy}
            drawn["obeys_proxy"] = number == given["obedient"]
        return drawn

    def _start(self, sidecar: Sidecar, who: str, settings: dict[str, Any]) -> Program:
        self._given[who] = sidecar, settings
        program = self._programs.start(who, self._hear, **settings)
        self.programs.append(program)
        return program

    def again(self, program: Program) -> Program:
        """Start a killed program again, with the same name and settings."""
        sidecar, settings = self._given[program.who]
        return self._start(sidecar, f"{program.who}+", settings)

    def _hear(self, program: Program, said: list[Any]) -> None:
        who = program.who
        match said:
            case ["write", role, token, _, until, checked]:
                program.put(self.resources.write(who, role, token, until, checked))
            case ["gained" | "let go" as what, role, token, at, *until]:
                if until:
                    self._ends[who, role, token] = until[0]
                self.history.add(HistoryEvent(what, who, at, role, token))
            case ["until", role, token, _, until]:
                self._ends[who, role, token] = until
            case ["frozen" | "thawed" as what, at]:
                self.history.add(HistoryEvent(what, who, at))
            case ["ended"]:
                self.history.add(HistoryEvent("ended", who, program.killed_at or SYSTEM.now()))

    # ── what faults ask for ──────────────────────────────────────────────────────────────────

    def sidecar_of(self, program: Program) -> Sidecar:
        """Return the sidecar of a program."""
        return self._given[program.who][0]

    def beside(self, sidecar: Sidecar) -> list[Program]:
        """Return the live programs of a sidecar."""
        return [
            one
            for one in self.programs
            if not one.ended.is_set() and self.sidecar_of(one) is sidecar
        ]

    def holder(self) -> Program:
        """Return a program that holds a role now."""
        self.history.wait(lambda h: bool(h.holders), SETTLE_TIMEOUT_S)
        who = self.random.choice(sorted(self.history.holders.values()))
        return next(one for one in self.programs if one.who == who)

    def any_program(self) -> Program:
        """Return any live program."""
        return self.random.choice([one for one in self.programs if not one.ended.is_set()])

    def meanwhile(self, step: Any) -> None:
        """Run a fault beside this one."""

        def run() -> None:
            try:
                for pause in step:
                    time.sleep(pause)
            except Exception:
                self.problems.append(traceback.format_exc())

        thread = threading.Thread(target=run, name="meanwhile")
        self._threads.append(thread)
        thread.start()

    def _sides(self, history: History) -> set[int]:
        whose = {who: self.sidecars.index(one) for who, (one, _) in self._given.items()}
        holders = history.holders
        return (
            {whose[who] for who in holders.values()} if len(holders) == len(self.roles) else set()
        )

    def recover(self) -> None:
        """End the fault, and wait until each role is held."""
        for thread in self._threads:
            thread.join()
        for program in list(self.programs):
            program.thaw()
        for wire in self.wires.values():
            wire.heal()
        for sidecar in self.sidecars:
            sidecar.revive()
        try:
            self.history.wait(lambda h: set(h.holders) == set(self.roles), SETTLE_TIMEOUT_S)
        except TimeoutError as error:
            self.problems.append(f"not all roles are held again: {error}")

    def close(self) -> None:
        """Kill all programs."""
        for thread in self._threads:
            thread.join()
        for program in self.programs:
            if not program.ended.is_set():
                program.kill()
        for wire in self.wires.values():
            wire.close()

    # ── the verdict ──────────────────────────────────────────────────────────────────────────

    def verdict(self, fault: str, seed: str, seconds: float) -> Verdict:
        """Judge the run, after all programs have died."""
        # A program notes the end of a turn a moment later than the end is, so by time.
        known = self.history.events
        events = [*self._with_stops(known), *self._untold_ends(known)]
        events.sort(key=lambda event: event.at)
        judgement = judge([*events, *self.resources.events])
        kinds, named = self._out_of_turn(judgement)
        return Verdict(
            fault=fault,
            seed=seed,
            problems=(*self.problems, *judgement.problems, *named),
            accepted=judgement.accepted,
            refused=judgement.refused,
            stale=len(judgement.stale),
            overlaps=len(judgement.overlaps) + len(judgement.early) + kinds["overlap"],
            stopped=kinds["stopped"],
            late=kinds["late"],
            grants=len(judgement.grants),
            gap=judgement.longest_gap(self.since),
            seconds=seconds,
        )

    def _with_stops(self, events: list[HistoryEvent]) -> list[HistoryEvent]:
        """Move each stop of a program to its last report while stopped.

        A busy machine takes milliseconds to stop a process, and the process runs for some of them.
        """
        stops = {one.who: one.stops for one in self.programs}
        reports: dict[str, list[float]] = {}
        for event in events:
            if event.what in (What.GAINED, What.LET_GO):
                reports.setdefault(event.who, []).append(event.at)
        moved = []
        for event in events:
            at = event.at
            if event.what in (What.FROZEN, What.ENDED):
                ends = [end for begin, end in stops[event.who] if begin == at]
                late = [
                    one for one in reports.get(event.who, ()) if at <= one <= max(ends, default=at)
                ]
                at = max(late) + AFTER_S if late else at
            moved.append(attrs.evolve(event, at=at))
        return moved

    def _untold_ends(self, events: list[HistoryEvent]) -> list[HistoryEvent]:
        """Return ends that passed before a kill and were not reported."""
        let_go = {(one.who, one.role, one.token) for one in events if one.what is What.LET_GO}
        ended = {one.who: one.at for one in events if one.what is What.ENDED}
        return [
            HistoryEvent(What.LET_GO, who, until, role, token)
            for (who, role, token), until in self._ends.items()
            if (who, role, token) not in let_go and until < ended.get(who, 0.0)
        ]

    def _out_of_turn(self, judgement: Judgement) -> tuple[Counter[str], list[str]]:
        """Find unguarded writes that came after a later turn, and their causes."""
        frozen = {one.who: one.frozen for one in self.programs}
        greatest: dict[str, int] = {}
        kinds, named = Counter[str](), list[str]()
        for write in self.resources.writes:
            if write.checked >= write.until:
                named.append(f"the program itself is wrong: {write}")
            if write.token >= greatest.get(write.role, 0):
                greatest[write.role] = write.token
                continue
            kind = kind_of(write, frozen[write.who])
            kinds[kind] += 1
            if kind == "overlap":
                named.append(f"{write} came after token {greatest[write.role]}")
        named += [f"early: {overlap}" for overlap in judgement.early]
        return kinds, named


def kind_of(write: Write, frozen: list[tuple[float, float]]) -> str:
    """Return the cause of a write that came after one of a later turn.

    Before the told end, the sidecar is the cause. After it, the program had checked in time, and
    was delayed before it wrote: frozen by the test, or by a slow machine.
    """
    if write.at < write.until:
        return "overlap"
    is_frozen = any(begin <= write.at and write.checked <= end for begin, end in frozen)
    return "stopped" if is_frozen else "late"

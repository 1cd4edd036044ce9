"""Measure how the cost of a change grows with the group.

The changes are a joint start, one more member, one replaced, and one fewer.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs
from arena import Arena
from child import Child, cpu_seconds, now
from figures import Figure, Outcome, Table

TITLE = "Many members in one group (in four processes, each member with a session of its own)"
PROCESSES = 4
TIMEOUT_S = 60  # for a request: hundreds of members on a few cores starve each other
LONG_S = 200.0
RECORD_BYTES = 350
SIZES = [20, 100, 300]
START = {"rebalance_delay": 5, "initial_delay": 2}  # the group counts as starting for 5 s
MORE = {"rebalance_delay": 0, "initial_delay": 0}
WAITS = {"rebalance_delay": 600, "initial_delay": 600}


@attrs.frozen(kw_only=True)
class Cost:
    """Hold the cost of one change of a group."""

    seconds: float
    revisions: float
    events: float
    megabytes: float
    members_cpu: float
    etcd_cpu: float


def cost_of(arena: Arena, processes: list[Child], change: Callable[[], float]) -> Cost:
    """Return the cost of a change.

    `change` returns the time at which it was over.
    """

    def cpu() -> float:
        return sum(cpu_seconds(process.pid) for process in processes)

    metrics, members_cpu, etcd_cpu = arena.metrics(), cpu(), arena.etcd_cpu()
    began = now()
    ended = change()
    time.sleep(0.5)  # later work is part of the cost, not of the time
    after = arena.metrics()
    return Cost(
        seconds=ended - began,
        revisions=after.since(metrics, "etcd_debugging_mvcc_current_revision"),
        events=after.since(metrics, "etcd_debugging_mvcc_events_total"),
        megabytes=after.since(metrics, "etcd_network_client_grpc_sent_bytes_total") / 1e6,
        members_cpu=cpu() - members_cpu,
        etcd_cpu=arena.etcd_cpu() - etcd_cpu,
    )


def bare(arena: Arena, size: int) -> Cost:
    """Return the limit: the cost of bare watches and puts.

    There is a watch for each member, and each puts one value of a record's size.
    """
    processes = [arena.probe() for _ in range(PROCESSES)]
    prefix = arena.prefix()
    for process in processes:
        process.ask("gather", prefix=prefix, count=size // PROCESSES)

    def burst() -> float:
        for process in processes:
            process.tell("burst", size=RECORD_BYTES, total=size)
        return max(process.answer()["at"] for process in processes)

    cost = cost_of(arena, processes, burst)
    for process in processes:
        process.kill()
        process.close()
    return cost


class Group:
    """Spread members over a few processes, and measure their changes."""

    def __init__(self, arena: Arena, size: int) -> None:
        self._arena = arena
        prefix = arena.prefix()
        self._processes = [arena.member(prefix, timeout=TIMEOUT_S) for _ in range(PROCESSES)]
        for process in self._processes:
            process.ask("calls")  # it has started: Python's start is not measured
        self._names: dict[str, Child] = {}
        self.failed: list[str] = []  # joins that had to be tried again
        for index in range(size):
            self._names[f"m{index:03d}"] = self._processes[index % PROCESSES]

    def start(self) -> Cost:
        """Let all members join at once."""

        def all_at_once() -> None:
            for process in self._processes:
                names = [name for name, one in self._names.items() if one is process]
                process.tell("join", group="g", names=names, shared=False, settings=START)
            self._names = {}
            for process in self._processes:
                answer = process.answer(LONG_S)
                self._names |= dict.fromkeys(answer["names"], process)
                self.failed += answer["failed"]

        return self._cost(all_at_once)

    def one_more(self) -> Cost:
        """Let one member join a settled group, which grows at once."""
        return self._cost(lambda: self._join("more", MORE))

    def one_replaced(self) -> Cost:
        """Return the cost of a waiting member that takes a leaver's rank.

        Its joining is not counted here.
        """
        time.sleep(START["rebalance_delay"])  # until then newcomers are ranked soon
        self._join("heir", WAITS)
        time.sleep(1)

        def replace() -> None:
            self._leave()

        return self._cost(replace)

    def one_fewer(self) -> Cost:
        """Let one member leave; no other waits, so the group shrinks."""
        return self._cost(self._leave)

    def close(self) -> None:
        """End them as they are: hundreds of leaves are not what is measured."""
        for process in self._processes:
            process.kill()
            process.close()

    def _join(self, name: str, settings: dict[str, Any]) -> None:
        process = self._processes[len(self._names) % PROCESSES]
        process.ask("join", group="g", names=[name], shared=False, settings=settings)
        self._names[name] = process

    def _leave(self) -> None:
        name = next(itertools.islice(self._names, 1, None))  # not the coordinator
        self._names.pop(name).ask("leave", names=[name])

    def _cost(self, change: Any) -> Cost:
        def settled() -> float:
            change()
            return self._settled()

        return cost_of(self._arena, self._processes, settled)

    def _settled(self) -> float:
        """Return when the last member saw the group settled at its size."""
        size = len(self._names)
        for process in self._processes:
            process.tell("settled", size=size, timeout=LONG_S)
        return max(process.answer(LONG_S + 10)["at"] for process in self._processes)


CHANGES = {
    "start": "all join at once",
    "one_more": "one more joins",
    "bare": "the limit: as many bare puts, seen by as many bare watches",
    "one_replaced": "one is replaced",
    "one_fewer": "one leaves, nobody waits",
}
LIMIT_IS = (
    "as many bare gRPC watches, each with a connection of its own, and one bare put of a record's "
    "size by each, until every watch has seen all of them"
)


def run(arena: Arena) -> Outcome:
    sizes = arena.pick(SIZES, [20, 50])
    costs: dict[tuple[int, str], Cost] = {}
    notes = []
    for done, size in enumerate(sizes):

        def show(text: str, done: int = done, size: int = size) -> None:
            arena.progress(f"{size} members: {text}", done, len(sizes))

        group = Group(arena, size)
        try:
            for change, cost in _changes(group, show):
                costs[size, change] = cost
        except RuntimeError as error:  # what smaller groups took is worth having all the same
            notes.append(f"{size} members: not measured: {error}")
        if group.failed:
            notes.append(
                f"{size} members: {len(group.failed)} joins failed and were tried again: etcd "
                f"seemed not to answer these processes, which starve each other ({group.failed[0]})"
            )
        group.close()
        show(CHANGES["bare"])
        costs[size, "bare"] = bare(arena, size)
    figures = [one for size in sizes for one in _figures(size, costs)]
    return Outcome(
        part="scaling", title=TITLE, figures=figures, tables=[_table(costs)], notes=notes
    )


def _changes(group: Group, show: Callable[[str], None]) -> Iterator[tuple[str, Cost]]:
    for change, text in CHANGES.items():
        if change != "bare":
            show(text)
            yield change, getattr(group, change)()


def _figures(size: int, costs: dict[tuple[int, str], Cost]) -> list[Figure]:
    notes = {"start": f"{START['initial_delay']} s of it are initial_delay"}
    limits = {"one_more": costs[size, "bare"].seconds}
    return [
        Figure(
            key=f"scaling.{size}.{change}",
            what=f"{size} members: {text}: settled after",
            value=costs[size, change].seconds,
            unit="s",
            limit=limits.get(change),
            limit_is=LIMIT_IS if change in limits else "",
            note=notes.get(change, ""),
            more=attrs.asdict(costs[size, change]),
        )
        for change, text in CHANGES.items()
        if change != "bare" and (size, change) in costs
    ]


def _table(costs: dict[tuple[int, str], Cost]) -> Table:
    heads = ["change", "members", "settled s", "revisions", "events sent", "sent MB"]
    heads += ["CPU s members", "CPU s etcd", "CPU ms by member"]
    rows = []
    for change, text in CHANGES.items():
        for (size, _), cost in sorted(one for one in costs.items() if one[0][1] == change):
            rows.append(
                [
                    text,
                    str(size),
                    f"{cost.seconds:.2f}",
                    f"{cost.revisions:,.0f}",
                    f"{cost.events:,.0f}",
                    f"{cost.megabytes:.2f}",
                    f"{cost.members_cpu:.2f}",
                    f"{cost.etcd_cpu:.2f}",
                    f"{1000 * cost.members_cpu / size:.0f}",
                ]
            )
    return Table(title="How it grows", heads=heads, rows=rows)

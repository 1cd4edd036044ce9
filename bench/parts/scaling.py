"""How a group's cost grows with its members: joining at once, one more, one replaced, one fewer."""

from __future__ import annotations

import time
from typing import Any

import attrs
from arena import Arena
from child import Child, cpu_seconds, now
from figures import Figure, Outcome, Table

TITLE = "Many members in one group (in four processes, each member with a session of its own)"
PROCESSES = 4
SIZES = [20, 100, 300]
START = {"rebalance_delay": 5, "initial_delay": 2}  # the group counts as starting for 5 s
MORE = {"rebalance_delay": 0, "initial_delay": 0}
WAITS = {"rebalance_delay": 600, "initial_delay": 600}


@attrs.frozen(kw_only=True)
class Cost:
    """What one change of a group took."""

    seconds: float
    revisions: float
    events: float
    megabytes: float
    members_cpu: float
    etcd_cpu: float


class Group:
    """Members spread over a few processes, and what their changes cost."""

    def __init__(self, arena: Arena, size: int) -> None:
        self._arena = arena
        prefix = arena.prefix()
        self._processes = [arena.member(prefix) for _ in range(PROCESSES)]
        self._names: dict[str, Child] = {}
        for index in range(size):
            self._names[f"m{index:03d}"] = self._processes[index % PROCESSES]

    def start(self) -> Cost:
        """All join at once."""

        def all_at_once() -> None:
            for process in self._processes:
                names = [name for name, one in self._names.items() if one is process]
                process.tell("join", group="g", names=names, shared=False, settings=START)
            for process in self._processes:
                process.answer()

        return self._cost(all_at_once)

    def one_more(self) -> Cost:
        """One joins a settled group, which grows for it at once."""
        return self._cost(lambda: self._join("more", MORE))

    def one_replaced(self) -> Cost:
        """One that waits takes the rank of one that leaves; its joining is not counted here."""
        time.sleep(START["rebalance_delay"])  # until then newcomers are ranked soon
        self._join("heir", WAITS)
        time.sleep(1)

        def replace() -> None:
            self._leave("m001")

        return self._cost(replace)

    def one_fewer(self) -> Cost:
        """One leaves, and nobody waits: the group shrinks."""
        return self._cost(lambda: self._leave("m002"))

    def close(self) -> None:
        for process in self._processes:
            process.tell("end")
        for process in self._processes:
            process.process.wait(60)
            process.close()

    def _join(self, name: str, settings: dict[str, Any]) -> None:
        process = self._processes[len(self._names) % PROCESSES]
        process.ask("join", group="g", names=[name], shared=False, settings=settings)
        self._names[name] = process

    def _leave(self, name: str) -> None:
        self._names.pop(name).ask("leave", names=[name])

    def _cpu(self) -> float:
        return sum(cpu_seconds(process.pid) for process in self._processes)

    def _cost(self, change: Any) -> Cost:
        metrics, cpu, etcd_cpu = self._arena.metrics(), self._cpu(), self._arena.etcd_cpu()
        began = now()
        change()
        ended = self._settled()
        time.sleep(0.5)  # what is still under way is part of the cost, not of the time
        after = self._arena.metrics()
        return Cost(
            seconds=ended - began,
            revisions=after.since(metrics, "etcd_debugging_mvcc_current_revision"),
            events=after.since(metrics, "etcd_debugging_mvcc_events_total"),
            megabytes=after.since(metrics, "etcd_network_client_grpc_sent_bytes_total") / 1e6,
            members_cpu=self._cpu() - cpu,
            etcd_cpu=self._arena.etcd_cpu() - etcd_cpu,
        )

    def _settled(self) -> float:
        """When the last member saw the group settled at its present size."""
        size = len(self._names)
        for process in self._processes:
            process.tell("settled", size=size)
        return max(process.answer()["at"] for process in self._processes)


CHANGES = {
    "start": "all join at once",
    "one_more": "one more joins",
    "one_replaced": "one is replaced",
    "one_fewer": "one leaves, nobody waits",
}


def run(arena: Arena) -> Outcome:
    sizes = arena.pick(SIZES, [20, 50])
    costs: dict[tuple[int, str], Cost] = {}
    for done, size in enumerate(sizes):
        arena.progress(f"{size} members", done, len(sizes))
        group = Group(arena, size)
        for change, text in CHANGES.items():
            arena.progress(f"{size} members: {text}", done, len(sizes))
            costs[size, change] = getattr(group, change)()
        group.close()
    figures = [
        Figure(
            key=f"scaling.{size}.settled",
            what=f"{size} members join at once: settled after",
            value=costs[size, "start"].seconds,
            unit="s",
            note="2 s of it are initial_delay",
            more=attrs.asdict(costs[size, "start"]),
        )
        for size in sizes
    ]
    return Outcome(part="scaling", title=TITLE, figures=figures, tables=[_table(costs)])


def _table(costs: dict[tuple[int, str], Cost]) -> Table:
    heads = ["change", "members", "settled s", "revisions", "events sent", "sent MB"]
    heads += ["CPU s members", "CPU s etcd", "CPU ms by member"]
    rows = []
    for change, text in CHANGES.items():
        for (size, what), cost in costs.items():
            if what != change:
                continue
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

"""Measure the cost of an idle member.

A bare keepalive stream and a bare watch stand beside it.
"""

from __future__ import annotations

import collections
import statistics
import time
from pathlib import Path

import attrs
from arena import Arena
from child import Child, cpu_seconds, now
from figures import Figure, Outcome, Table, at_most

TITLE = "An idle member (ttl 60 s; three members, which share 20 roles)"
MEMBERS = 3
TTL = 60
MOST_REQUESTS = {TTL: 12, 20: 22, 10: 40}
"""Requests that an idle member may send in a minute, for each TTL measured."""
PROBES = 2
ROLES = 20
LIMIT_IS = "a process with one bare gRPC keepalive stream and one bare watch, idle for as long"


def run(arena: Arena) -> Outcome:
    groups = {ttl: _joined(arena, ttl) for ttl in MOST_REQUESTS}
    bare = [arena.probe() for _ in range(PROBES)]
    same = [arena.probe(options=True) for _ in range(PROBES)]
    for child in (*bare, *same):
        child.ask("idle", ttl=TTL)
    time.sleep(3)  # what starting has left to do is done
    before = {ttl: _calls(members) for ttl, members in groups.items()}
    names = groups[TTL][0].ask("threads")["threads"]
    time.sleep(0.5)
    threads = Threads(groups[TTL][0].pid, names)
    seconds = arena.pick(60, 10)
    used = _used(arena, {"members": groups[TTL], "bare": bare, "same": same}, seconds)
    table = threads.table()
    took = seconds + 0.5
    sent = {
        ttl: {
            kind: (count - before[ttl].get(kind, 0)) * 60 / took / MEMBERS
            for kind, count in _calls(members).items()
        }
        for ttl, members in groups.items()
    }
    for child in (*(one for members in groups.values() for one in members), *bare, *same):
        child.close()
    figures = [_cpu(used, seconds), *(_requests(ttl, rates) for ttl, rates in sent.items())]
    return Outcome(part="idle", title=TITLE, figures=figures, tables=[table])


def _joined(arena: Arena, ttl: int) -> list[Child]:
    """Start a settled group of members, each in a process."""
    prefix = arena.prefix()
    settings = {"rebalance_delay": 0, "initial_delay": 0}
    members = {f"m{i}": arena.member(prefix, ttl=ttl) for i in range(MEMBERS)}
    for name, child in members.items():
        child.ask("join", group="g", names=[name], settings=settings)
        child.ask("hold", name=name, roles=ROLES)
    for child in members.values():
        child.ask("settled", size=MEMBERS)
    return list(members.values())


def _calls(members: list[Child]) -> dict[str, int]:
    """Return how many requests of each kind a group has sent."""
    calls: collections.Counter[str] = collections.Counter()
    for child in members:
        calls.update(child.ask("calls")["calls"])
    return calls


def _used(arena: Arena, groups: dict[str, list[Child]], seconds: int) -> dict[str, list[float]]:
    """Return the share of a core that each process used, in percent."""
    began = now()
    before = {name: [cpu_seconds(one.pid) for one in group] for name, group in groups.items()}
    for second in range(seconds):
        arena.progress("idle", second, seconds)
        time.sleep(1)
    took = now() - began
    return {
        name: [
            100 * (cpu_seconds(one.pid) - was) / took
            for one, was in zip(group, before[name], strict=True)
        ]
        for name, group in groups.items()
    }


@attrs.frozen
class Thread:
    """Hold the CPU seconds of a thread, and how often it went to sleep."""

    name: str
    cpu: float
    waits: int


class Threads:
    """Measure the threads of a process from now on."""

    def __init__(self, pid: int, names: dict[str, str]) -> None:
        self._pid = pid
        self._names = names
        self._began = now()
        self._before = self._read()

    def _read(self) -> dict[str, Thread]:
        found = {}
        for task in Path(f"/proc/{self._pid}/task").iterdir():
            status = dict(line.split(":", 1) for line in (task / "status").read_text().splitlines())
            name = self._names.get(task.name) or f"gRPC's {status['Name'].strip()}"
            if name.startswith("Thread-"):
                name = "gRPC's threads in Python"  # the library names all of its own
            found[task.name] = Thread(
                name,
                int((task / "schedstat").read_text().split()[0]) / 1e9,
                int(status["voluntary_ctxt_switches"]),
            )
        return found

    def table(self) -> Table:
        took = now() - self._began
        cpu: dict[str, float] = {}
        waits: dict[str, float] = {}
        for tid, thread in self._read().items():
            before = self._before.get(tid, Thread("", 0, 0))
            cpu[thread.name] = cpu.get(thread.name, 0) + thread.cpu - before.cpu
            waits[thread.name] = waits.get(thread.name, 0) + thread.waits - before.waits
        rows = [
            [name, f"{100 * used / took:.3f}", f"{waits[name] / took:.1f}"]
            for name, used in sorted(cpu.items(), key=lambda item: -item[1])
            if waits[name]
        ]
        title = "Which of its threads: one member (those of one name together)"
        return Table(title=title, heads=["thread", "% of a core", "wakes a second"], rows=rows)


def _cpu(used: dict[str, list[float]], seconds: int) -> Figure:
    same = statistics.mean(used["same"])
    return Figure(
        key="idle.cpu",
        what=f"CPU over {seconds} s, mean of {len(used['members'])}",
        value=statistics.mean(used["members"]),
        unit="% of a core",
        limit=statistics.mean(used["bare"]),
        limit_is=LIMIT_IS,
        target=at_most(statistics.mean(used["bare"]), "≤ limit"),
        note=f"the limit with the pings and settings of Rink's own channels: {same:.3f} %",
        more=used,
    )


def _requests(ttl: int, sent: dict[str, float]) -> Figure:
    rates = {kind: round(rate, 1) for kind, rate in sent.items() if rate}
    most = MOST_REQUESTS[ttl]
    return Figure(
        key=f"idle.requests.{ttl}",
        what=f"requests per minute at ttl {ttl} s",
        value=sum(rates.values()),
        unit="",
        limit=360 / ttl,
        limit_is="keepalives a minute, a sixth of the TTL apart",
        target=at_most(most, f"<= {most}"),
        note=", ".join(f"{kind} {rate:g}" for kind, rate in rates.items()),
    )

"""What a member costs that has nothing to do, beside a bare keepalive stream and a bare watch."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import attrs
from arena import Arena
from child import Child, cpu_seconds, now
from figures import Figure, Outcome, Table, at_most

TITLE = "An idle member (ttl 60 s, the default; three members, which share 20 roles)"
MEMBERS = 3
PROBES = 2
ROLES = 20
LIMIT_IS = "a process with one bare gRPC keepalive stream and one bare watch, idle for as long"


def run(arena: Arena) -> Outcome:
    prefix = arena.prefix()
    settings = {"rebalance_delay": 0, "initial_delay": 0}
    members = {f"m{i}": arena.member(prefix) for i in range(MEMBERS)}
    for name, child in members.items():
        child.ask("join", group="g", names=[name], settings=settings)
        child.ask("hold", name=name, roles=ROLES)
    for child in members.values():
        child.ask("settled", size=MEMBERS)
    bare = [arena.probe() for _ in range(PROBES)]
    same = [arena.probe(options=True) for _ in range(PROBES)]
    for child in (*bare, *same):
        child.ask("idle", ttl=60)
    time.sleep(3)  # what starting has left to do is done
    calls = {name: child.ask("calls")["calls"] for name, child in members.items()}
    names = members["m0"].ask("threads")["threads"]
    time.sleep(0.5)
    threads = Threads(members["m0"].pid, names)
    seconds = arena.pick(60, 10)
    groups = {"members": list(members.values()), "bare": bare, "same": same}
    used = _used(arena, groups, seconds)
    table = threads.table()
    sent: dict[str, float] = {}
    for name, child in members.items():
        for kind, count in child.ask("calls")["calls"].items():
            more = count - calls[name].get(kind, 0)
            sent[kind] = sent.get(kind, 0) + more * 60 / (seconds + 0.5) / MEMBERS
    for child in (*members.values(), *bare, *same):
        child.close()
    figures = _figures(used, sent, seconds)
    return Outcome(part="idle", title=TITLE, figures=figures, tables=[table])


def _used(arena: Arena, groups: dict[str, list[Child]], seconds: int) -> dict[str, list[float]]:
    """The share of a core that each process used, in percent."""
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
    """What one thread has used: seconds of CPU, and how often it went to sleep."""

    name: str
    cpu: float
    waits: int


class Threads:
    """The threads of a process, and what they use from now on."""

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


def _figures(used: dict[str, list[float]], sent: dict[str, float], seconds: int) -> list[Figure]:
    sent = {kind: round(rate, 1) for kind, rate in sent.items() if rate}
    bare, same = statistics.mean(used["bare"]), statistics.mean(used["same"])
    return [
        Figure(
            key="idle.cpu",
            what=f"CPU over {seconds} s, mean of {len(used['members'])}",
            value=statistics.mean(used["members"]),
            unit="% of a core",
            limit=bare,
            limit_is=LIMIT_IS,
            target=at_most(0.2, "< 0.2 %"),
            note=f"the limit with the pings and settings of Rink's own channels: {same:.3f} %",
            more=used,
        ),
        Figure(
            key="idle.requests",
            what="requests per minute",
            value=sum(sent.values()),
            unit="",
            limit=6,
            limit_is="6 keepalives a minute, a sixth of the TTL apart",
            note=", ".join(f"{kind} {rate:g}" for kind, rate in sent.items()),
        ),
    ]

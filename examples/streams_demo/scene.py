"""Fold the events into each worker's partitions, and draw them."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import ClassVar

from common.display import actors_table, add_actor, bar, frame
from common.events import Event
from common.show import SENDER, Actor, Show
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

Held = dict[str, dict[int, int]]  # by processor: the token of each partition


@dataclass(kw_only=True)
class Worker(Actor):
    held: Held = field(default_factory=lambda: defaultdict(dict))
    # By processor: each batch in hand, and the earliest end of the work on it.
    working: dict[str, dict[tuple[str, str], float]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    refused: Counter[str] = field(default_factory=Counter)

    def let_go(self) -> None:
        self.held.clear()

    def is_amid_work(self, processor: str, at: float) -> bool:
        """Return whether it had an unfinished batch in hand at that time."""
        return any(until > at for until in self.working[processor].values())


@dataclass(kw_only=True)
class Scene(Show):
    actor_class: ClassVar[type[Actor]] = Worker

    legs: int
    processors: tuple[str, ...]
    sent: int = 0
    done: dict[str, int] = field(default_factory=dict)

    @property
    def workers(self) -> list[Worker]:
        return [one for name, one in self.members.items() if name != SENDER]

    @property
    def all_done(self) -> bool:
        return all(self.done.get(name, 0) >= self.legs for name in self.processors)

    def _apply_member(self, member: Worker, event: Event) -> None:
        match event["what"]:
            case "granted":
                member.held[event["processor"]][event["partition"]] = event["token"]
                if member.state == "starting":
                    member.state = "running"
            case "released":
                member.held[event["processor"]].pop(event["partition"], None)
            case "working":
                until = event["at"] + event["lasts"]
                member.working[event["processor"]][event["batch"], event["key"]] = until
            case "worked":
                member.working[event["processor"]].pop((event["batch"], event["key"]), None)
            case "refused":
                member.refused[event["processor"]] += 1
                if member.refused[event["processor"]] == 1:
                    self.say(event["at"], f"{member.name}'s write was refused: {event['why']}")
            case "sent":
                self.sent = event["count"]
            case _:
                super()._apply_member(member, event)


def draw(scene: Scene) -> Panel:
    bars = [bar(scene.sent, scene.legs, f"{scene.sent:>9,} of {scene.legs:,} sent")]
    bars += [
        bar(count, scene.legs, f"{count:>9,} by {name:5}")
        for name, count in sorted(scene.done.items())
    ]
    return frame(scene, "Rink: a year of flights, as a stream", *bars, Text(), workers_table(scene))


def workers_table(scene: Scene) -> Table:
    table = actors_table("worker", "pid", "state")
    for name in scene.processors:
        table.add_column(f"partitions of {name}", ratio=1, no_wrap=True)
    for worker in scene.workers:
        held = (sorted(worker.held.get(name, ())) for name in scene.processors)
        add_actor(table, worker, (" ".join(map(str, partitions)) for partitions in held))
    return table


def progress_line(scene: Scene) -> str:
    done = ", ".join(f"{count:,} by {name}" for name, count in sorted(scene.done.items()))
    held = "  ".join(
        f"{one.name}:{one.state}:" + "+".join(str(len(one.held[name])) for name in scene.processors)
        for one in scene.workers
        if not one.is_over
    )
    return f"{scene.sent:,} of {scene.legs:,} sent, {done}  {held}"

"""Fold the events into the state of the drivers, and draw it."""

from dataclasses import dataclass, field
from typing import ClassVar

from common.display import actors_table, add_actor, bar, frame
from common.events import Event
from common.show import SENDER, Actor, Show
from rich.panel import Panel
from rich.table import Table
from rich.text import Text


@dataclass(kw_only=True)
class Driver(Actor):
    token: int = 0  # of the role, while this driver believes that it has it
    refused: int = 0
    known: int = 0  # parts of a batch that the guards knew as written
    waiting: set[str] = field(default_factory=set)  # the places where it is held

    def let_go(self) -> None:
        self.token = 0


@dataclass(kw_only=True)
class Scene(Show):
    actor_class: ClassVar[type[Actor]] = Driver

    flights: int
    sent: int = 0
    counted: int = 0
    batches: int = 0  # those that Spark has committed
    greatest: int = 0  # token
    holder: str = ""

    @property
    def drivers(self) -> list[Driver]:
        return [one for name, one in self.members.items() if name != SENDER]

    def _apply_member(self, member: Driver, event: Event) -> None:
        match event["what"]:
            case "granted" if event["token"] != member.token:
                member.token = event["token"]
                if event["token"] > self.greatest:
                    self.greatest, self.holder = event["token"], member.name
                self.say(event["at"], f"{member.name} has the role, with token {member.token}")
            case "lost":
                if member.token == event["token"]:
                    member.token = 0
                self.say(event["at"], f"{member.name} has the role no more")
            case "waiting":
                member.waiting.add(event["where"])
            case "known":
                member.known += 1
            case "refused":
                member.refused += 1
                written = f"{event['written']} to {event['store']}"
                self.say(event["at"], f"{member.name}: {written} was refused: {event['why']}")
            case "sent":
                self.sent = event["count"]
            case _:
                super()._apply_member(member, event)


def draw(scene: Scene) -> Panel:
    bars = [
        bar(scene.sent, scene.flights, f"{scene.sent:>9,} of {scene.flights:,} sent"),
        bar(scene.counted, scene.flights, f"{scene.counted:>9,} counted, {scene.batches} batches"),
    ]
    return frame(scene, "Rink: a year of flights, on Spark", *bars, Text(), drivers_table(scene))


def drivers_table(scene: Scene) -> Table:
    table = actors_table("driver", "pid", "state", "token of the role", "refused", "known")
    for one in scene.drivers:
        add_actor(table, one, (str(count or "") for count in (one.token, one.refused, one.known)))
    return table


def progress_line(scene: Scene) -> str:
    held = "  ".join(
        f"{one.name}:{one.state}{':' + str(one.token) if one.token else ''}"
        for one in scene.drivers
        if not one.is_over
    )
    return (
        f"{scene.sent:,} of {scene.flights:,} sent, {scene.counted:,} counted in"
        f" {scene.batches} batches  {held}"
    )

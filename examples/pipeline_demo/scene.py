"""What the onlooker knows at this moment of the drivers; drawn here too."""

from dataclasses import dataclass, field
from typing import ClassVar

from flights_demo.display import STYLES, LiveDisplay, PlainDisplay, bar, frame, make_display
from flights_demo.events import Event
from flights_demo.show import Actor, Show
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

SENDER = "sender"


@dataclass(kw_only=True)
class Driver(Actor):
    token: int = 0  # of the role, while it has it by its own account
    refused: int = 0
    known: int = 0  # parts of a batch that the guards knew: they had been written before
    waiting: set[str] = field(default_factory=set)  # the places where it waits to be hit

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


def make_show(console: Console) -> LiveDisplay | PlainDisplay:
    return make_display(console, draw, progress_line)


def draw(scene: Scene) -> Panel:
    bars = [
        bar(scene.sent, scene.flights, f"{scene.sent:>9,} of {scene.flights:,} sent"),
        bar(scene.counted, scene.flights, f"{scene.counted:>9,} counted, {scene.batches} batches"),
    ]
    return frame(scene, "Rink: a year of flights, on Spark", *bars, Text(), drivers_table(scene))


def drivers_table(scene: Scene) -> Table:
    table = Table(expand=True, box=None, header_style="bold", pad_edge=False)
    for heading in ("driver", "pid", "state", "token of the role", "refused", "known"):
        table.add_column(heading, no_wrap=True)
    for one in scene.drivers:
        table.add_row(
            one.name,
            str(one.pid),
            Text(one.state, STYLES.get(one.state, "yellow")),
            str(one.token or ""),
            str(one.refused or ""),
            str(one.known or ""),
            style="dim" if one.is_over else "",
        )
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

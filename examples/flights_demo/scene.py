"""Fold the events into ranks, jobs and carriers, and draw them."""

from dataclasses import dataclass, field
from typing import ClassVar

from common.display import actors_table, bar, frame, state_text
from common.events import Event
from common.show import Actor, Show
from rich.panel import Panel
from rich.table import Table
from rich.text import Text


@dataclass(kw_only=True)
class Member(Actor):
    job: str = ""
    carriers: set[str] = field(default_factory=set)
    jobs_done: int = 0
    last: Event = field(default_factory=dict)  # its last event about a job

    def let_go(self) -> None:
        self.job = ""
        self.carriers.clear()


@dataclass(kw_only=True)
class Scene(Show):
    actor_class: ClassVar[type[Actor]] = Member

    jobs: int
    jobs_done: int = 0
    version: int = 0
    ranks: list[str] = field(default_factory=list)

    def rank(self, name: str) -> int | None:
        return self.ranks.index(name) if name in self.ranks else None

    def _apply_version(self, event: Event) -> None:
        if event["number"] > self.version:
            self.version, self.ranks = event["number"], event["ranks"]
            because = ", ".join(event["because"])
            self.say(event["at"], f"version {self.version}: {' '.join(self.ranks)} ({because})")

    def _apply_member(self, member: Member, event: Event) -> None:
        if event["what"] == "version":
            self._apply_version(event)
            return
        role = event.get("role", "")
        long_held = role.startswith("carrier/")
        if role and not long_held:
            member.last = event
        match event["what"]:
            case "granted" if long_held:
                member.carriers.add(role.removeprefix("carrier/"))
            case "released" if long_held:
                member.carriers.discard(role.removeprefix("carrier/"))
            case "granted":
                member.job = role
            case "released":
                member.job = ""
            case "done":
                member.jobs_done += 1
            case "lost":
                self.say(event["at"], f"{member.name} lost {role} in mid-work and stopped")
            case "refused":
                self.say(event["at"], f"{member.name}'s write was refused: {event['why']}")
            case _:
                super()._apply_member(member, event)


def draw(scene: Scene) -> Panel:
    progress = bar(scene.jobs_done, scene.jobs, f"{scene.jobs_done:,} of {scene.jobs:,} jobs")
    return frame(scene, "Rink: a year of flights", progress, Text(), members_table(scene))


def members_table(scene: Scene) -> Table:
    table = actors_table("member", "pid", "rank", "state", "job in hand")
    table.add_column("jobs done", justify="right", no_wrap=True)
    table.add_column("carriers' boards", ratio=1, no_wrap=True)
    for member in scene.members.values():
        rank = scene.rank(member.name)
        is_waiting = member.state == "running" and rank is None
        table.add_row(
            member.name,
            str(member.pid),
            "" if rank is None else str(rank),
            state_text("waiting" if is_waiting else member.state),
            member.job,
            str(member.jobs_done),
            " ".join(sorted(member.carriers)),
            style="dim" if member.is_over else "",
        )
    return table


def progress_line(scene: Scene) -> str:
    held = "  ".join(
        f"{member.name}:{'-' if (rank := scene.rank(member.name)) is None else rank}:{member.state}"
        for member in scene.members.values()
        if not member.is_over
    )
    return f"{scene.jobs_done:,} of {scene.jobs:,} jobs  {held}"

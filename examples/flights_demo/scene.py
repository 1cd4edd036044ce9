"""What the onlooker of the flights knows beside what any demo tells: ranks, jobs, carriers."""

from dataclasses import dataclass, field
from typing import ClassVar

from flights_demo.events import Event
from flights_demo.show import Actor, Show


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

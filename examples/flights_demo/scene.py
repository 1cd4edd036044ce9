"""What the onlooker knows at this moment, folded from the events; drawn by `display`."""

from collections import deque
from dataclasses import dataclass, field

from flights_demo.events import Event

LOG_LINES = 8


@dataclass(slots=True)
class Member:
    name: str
    pid: int
    generation: int
    state: str = "starting"  # then running, leaving, frozen, killed, gone
    job: str = ""
    carriers: set[str] = field(default_factory=set)
    jobs_done: int = 0
    last: Event = field(default_factory=dict)  # its last event about a job

    @property
    def is_over(self) -> bool:
        return self.state in ("gone", "killed")


@dataclass(slots=True)
class Scene:
    jobs: int
    jobs_done: int = 0
    began: float = 0.0
    now: float = 0.0
    phase: str = "start"
    version: int = 0
    ranks: list[str] = field(default_factory=list)
    members: dict[str, Member] = field(default_factory=dict)
    log: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    logged: int = 0

    def say(self, at: float, text: str) -> None:
        self.log.append((at, text))
        self.logged += 1

    def rank(self, name: str) -> int | None:
        return self.ranks.index(name) if name in self.ranks else None

    def apply(self, event: Event) -> None:
        about = self.members.get(event["member"])
        if about is None:
            self._apply_onlooker(event)
        elif event["what"] == "version":
            self._apply_version(event)
        else:
            self._apply_member(about, event)

    def _apply_onlooker(self, event: Event) -> None:
        at, target = event["at"], event.get("target", "")
        match event["what"]:
            case "phase":
                self.phase = event["name"]
                self.say(at, f"— {event['name']} —")
            case "started":
                self.members[target] = Member(target, event["pid"], event["generation"])
                self.say(at, f"{target} started")
            case "terminated":
                self.say(at, f"{target} was asked to leave (SIGTERM)")
            case "frozen" | "killed" | "gone" as state:
                self.members[target].state = state
                signal = {"frozen": " (SIGSTOP)", "killed": " (SIGKILL)", "gone": ""}[state]
                self.say(at, f"{target} is {state}{signal}{event.get('why', '')}")
                if state != "frozen":
                    self.members[target].job = ""
                    self.members[target].carriers.clear()
            case "thawed":
                self.members[target].state = "running"
                self.say(at, f"{target} thawed (SIGCONT){event.get('why', '')}")

    def _apply_version(self, event: Event) -> None:
        if event["number"] > self.version:
            self.version, self.ranks = event["number"], event["ranks"]
            because = ", ".join(event["because"])
            self.say(event["at"], f"version {self.version}: {' '.join(self.ranks)} ({because})")

    def _apply_member(self, member: Member, event: Event) -> None:
        role = event.get("role", "")
        long_held = role.startswith("carrier/")
        if role and not long_held:
            member.last = event
        match event["what"]:
            case "joined":
                member.state = "running"
            case "leaving":
                member.state = "leaving"
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

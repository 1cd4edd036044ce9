"""Fold the events of a demo into its present state, which `display` draws."""

from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar

from common.events import Event

LOG_LINES = 8
SENDER = "sender"  # the process that sends the flights, in demos with a stream


@dataclass(kw_only=True)
class Actor:
    """Hold the state of one process of a demo, by the events."""

    name: str
    pid: int
    generation: int
    state: str = "starting"  # then running, leaving, frozen, killed, gone

    @property
    def is_over(self) -> bool:
        return self.state in ("gone", "killed")

    def let_go(self) -> None:
        """Drop all that the process held, since it has ended."""


@dataclass(kw_only=True)
class Show:
    """Hold a demo's phase, its processes, and a log of its events."""

    actor_class: ClassVar[type[Actor]] = Actor

    began: float = 0.0
    now: float = 0.0
    phase: str = "start"
    members: dict[str, Actor] = field(default_factory=dict)
    log: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=LOG_LINES))
    logged: int = 0

    def say(self, at: float, text: str) -> None:
        self.log.append((at, text))
        self.logged += 1

    def apply(self, event: Event) -> None:
        about = self.members.get(event["member"])
        if about is None:
            self._apply_onlooker(event)
        else:
            self._apply_member(about, event)

    def _apply_member(self, member: Actor, event: Event) -> None:
        match event["what"]:
            case "joined":
                member.state = "running"
            case "leaving":
                member.state = "leaving"

    def _apply_onlooker(self, event: Event) -> None:
        at, target = event["at"], event.get("target", "")
        match event["what"]:
            case "phase":
                self.phase = event["name"]
                self.say(at, f"— {event['name']} —")
            case "started":
                self.members[target] = self.actor_class(
                    name=target, pid=event["pid"], generation=event["generation"]
                )
                self.say(at, f"{target} started")
            case "terminated":
                self.say(at, f"{target} was asked to leave (SIGTERM)")
            case "frozen" | "killed" | "gone" as state:
                self.members[target].state = state
                signal = {"frozen": " (SIGSTOP)", "killed": " (SIGKILL)", "gone": ""}[state]
                self.say(at, f"{target} is {state}{signal}{event.get('why', '')}")
                if state != "frozen":
                    self.members[target].let_go()
            case "thawed":
                self.members[target].state = "running"
                self.say(at, f"{target} thawed (SIGCONT){event.get('why', '')}")

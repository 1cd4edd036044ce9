"""Read what members and nodes wrote during a rollout."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

from rink.testing.history import HistoryEvent, Judgement, What, judge

APP = "member"
"""The name of the workload, and of its container."""
_REPORTS = {"gained", "let go"}
LOGGED = re.compile(
    r"^(\S+ \S+) INFO +rink: group \S+ (?:(joined as)|version \d+: (?:rank (\d+)|no rank))",
    re.MULTILINE,
)
SAID = re.compile(r"^(\d+\.\d+) (gained|let go) (\S+) (\d+)$", re.MULTILINE)


def now() -> float:
    """Return the time of the clock that all events have."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@attrs.frozen
class Line:
    """Hold one line that is no event of a history.

    It is `joined`, `rank`, `redistributed`, `left` or `ended`.

    Attributes:
        value: the rank, or the members at a redistribution.
    """

    what: str
    who: str
    at: float
    value: Any = None


class Records:
    """Hold where the records of a row are, and read them anew on each call.

    Args:
        folder: of the members' files of events, one for each pod.
        journals: returns the files of the nodes.
    """

    def __init__(self, folder: Path, journals: Callable[[], list[Path]]) -> None:
        self._folder = folder
        self._journals = journals
        self._observed: list[HistoryEvent] = []

    def observe(self, event: HistoryEvent) -> None:
        """Add an event that the test itself has seen.

        The end of a killed node's pods is one.
        """
        self._observed.append(event)

    def events(self) -> list[HistoryEvent]:
        """Return the history that members and nodes wrote.

        Nodes wrote which processes ended.
        """
        written = [
            HistoryEvent(line["what"], line["who"], line["at"], line["role"], line["token"])
            for line in self._written()
            if line["what"] in _REPORTS
        ]
        ends = [
            HistoryEvent(What.ENDED, line["pod"], line["at"])
            for line in self.journal()
            if line["what"] == "ended" and line["container"] == APP
        ]
        return [*written, *ends, *self._observed]

    def judge(self) -> Judgement:
        """Return the judgement of all events so far."""
        return judge(self.events())

    def lines(self) -> list[Line]:
        """Return the lines beside the events, with the ends of processes, by time."""
        lines = [
            Line(line["what"], line["who"], line["at"], line.get("rank", line.get("members")))
            for line in self._written()
            if line["what"] not in _REPORTS
        ]
        ends = [Line("ended", one.who, one.at) for one in self.events() if one.what is What.ENDED]
        return sorted(lines + ends, key=lambda line: line.at)

    def journal(self) -> list[dict[str, Any]]:
        """Return what the nodes did."""
        return [line for path in self._journals() for line in read_lines(path)]

    def ranks(self) -> dict[str, int]:
        """Return the rank of each pod that has one and has not left."""
        ranks: dict[str, int] = {}
        for line in self.lines():
            if line.what == "rank" and line.value is not None:
                ranks[line.who] = line.value
            elif line.what in {"rank", "left", "ended"}:
                ranks.pop(line.who, None)
        return ranks

    def starts(self, since: float) -> list[float]:
        """Return the seconds from each pod's creation to its join."""
        joined: dict[str, list[float]] = {}
        for line in self.lines():
            if line.what == "joined":
                joined.setdefault(line.who, []).append(line.at)
        starts = []
        for line in self.journal():
            if line["what"] == "taken" and line["at"] >= since:
                later = (at for at in joined.get(line["pod"], []) if at > line["at"])
                starts.extend(at - line["at"] for at in [next(later, None)] if at is not None)
        return starts

    def changes(self, since: float) -> int:
        """Return how often the group distributed its roles anew.

        In Rink that is a member that got a rank. Of redistributions, each list of members counts.
        """
        later = [line for line in self.lines() if line.at > since]
        ranked = [line for line in later if line.what == "rank" and line.value is not None]
        anew = {tuple(line.value) for line in later if line.what == "redistributed"}
        return len(ranked) + len(anew)

    def pid(self, pod: str, container: str = APP) -> int:
        """Return the process id of a pod's container."""
        started = [
            one
            for one in self.journal()
            if (one["what"], one["pod"], one["container"]) == ("started", pod, container)
        ]
        return int(started[-1]["pid"])

    def _written(self) -> list[dict[str, Any]]:
        return [line for path in self._folder.glob("*.jsonl") for line in read_lines(path)]


class SaidRecords(Records):
    """Read the events from what programs and sidecars printed.

    A program prints lines `SECONDS gained ROLE TOKEN`, and `let go`. So it says itself from when to
    when it worked under which token. It reads its clock after a grant has come, and before it
    answers a loss. An end that has passed counts from that end, as no work is begun after it. The
    clock has steps of 10 ms, so times do not show a shorter overlap. Tokens are judged as well.

    A sidecar, or `rink run`, logs when it joined and which rank it got, with the time of day.
    """

    def _written(self) -> list[dict[str, Any]]:
        pods = [pod for journal in self._journals() for pod in journal.parent.glob("pods/*")]
        return [line for pod in pods for line in (*self._said(pod), *self._logged(pod))]

    @staticmethod
    def _said(pod: Path) -> Iterator[dict[str, Any]]:
        for seconds, what, role, token in SAID.findall(text_of(pod / f"{APP}.log")):
            at = float(seconds)
            yield {"what": what, "who": who(pod), "at": at, "role": role, "token": int(token)}

    @staticmethod
    def _logged(pod: Path) -> Iterator[dict[str, Any]]:
        awake_since = time.time() - now()
        last: str | None = None
        log = pod / "rink.log" if (pod / "rink.log").exists() else pod / f"{APP}.log"
        for moment, joined, rank in LOGGED.findall(text_of(log)):
            whole, _, thousandths = moment.partition(",")
            at = time.mktime(time.strptime(whole, "%Y-%m-%d %H:%M:%S")) - awake_since
            at += int(thousandths) / 1000
            if joined:
                last = None
                yield {"what": "joined", "who": who(pod), "at": at}
            elif rank != last:  # each version says it, whether it changed or not
                last = rank
                yield {
                    "what": "rank",
                    "who": who(pod),
                    "at": at,
                    "rank": int(rank) if rank else None,
                }


def who(folder: Path) -> str:
    """Return the pod of a folder, which is named NAMESPACE_POD_UID."""
    return folder.name.split("_")[1]


def text_of(path: Path) -> str:
    """Return the text of a file, "" if there is none."""
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a file of JSON lines.

    The last line may be half written.
    """
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

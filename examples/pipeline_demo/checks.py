"""Check Redis, the files and the notes afterwards, by pure functions.

They trust neither the guards nor Spark. They judge the accepted parts by their tokens, and compare
the totals with one plain pass.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
from common.checks import repeated
from common.events import Event
from common.show import SENDER

from pipeline_demo.plain import GRAIN

Entry = dict[str, Any]  # of the list in Redis: a fence that was raised, or a part that was accepted


def stale_parts(accepted: Iterable[Entry]) -> list[str]:
    """Return every part accepted after a greater token or its fence."""
    greatest, found = 0, []
    for one in accepted:
        token = one.get("fence", one.get("token"))
        if "token" in one and token < greatest:
            what = f"part {one['part']} of batch {one['batch']}"
            found.append(f"{what} by {one['driver']} with token {token} after {greatest}")
        greatest = max(greatest, token)
    return found


def doubled_parts(accepted: Iterable[Entry]) -> list[str]:
    """Return every part that Redis accepted more than once. Must be empty."""
    parts = sorted((one["batch"], one["part"]) for one in accepted if "token" in one)
    return repeated(Counter(f"part {part} of batch {batch}" for batch, part in parts))


def stale_rows(rows: pd.DataFrame) -> list[str]:
    """Return every batch that was published with a stale token. Must be empty."""
    greatest, found = 0, []
    in_order = rows[["batch", "token"]].drop_duplicates().itertuples(index=False, name=None)
    for batch, token in in_order if len(rows) else ():
        if token < greatest:
            found.append(f"batch {batch} with token {token} after {greatest}")
        greatest = max(greatest, token)
    return found


def doubled_rows(rows: pd.DataFrame) -> list[str]:
    """Return every batch with two rows of the same key. Must be empty."""
    again = rows[rows.duplicated(["batch", *GRAIN])]
    return [
        f"batch {batch}: {count:,} rows" for batch, count in again.groupby("batch").size().items()
    ]


# ── holders and their ends ───────────────────────────────────────────────────────────────────


@dataclass(kw_only=True)
class Holding:
    """Hold the time in which one driver had the role; a kill ends it."""

    driver: str
    token: int
    start: float
    end: float
    silenced: str = ""  # "frozen" or "killed", where that ended it
    silenced_at: float = 0.0
    cause: str = "start"  # of the end of the holding before
    cause_at: float = 0.0
    begun: float = 0.0  # the function got the first batch
    committed: float = 0.0  # Spark committed this batch


def holdings(events: Iterable[Event], commits: Mapping[int, float]) -> list[Holding]:
    """Return the holdings by token; an open one ends with the last event."""
    in_order = sorted(events, key=lambda event: event["at"])
    found: dict[int, Holding] = {}
    for event in in_order:
        match event["what"]:
            case "granted" if event["token"] not in found:
                found[event["token"]] = Holding(
                    driver=event["member"],
                    token=event["token"],
                    start=event["at"],
                    end=in_order[-1]["at"],
                )
            case "lost":
                found[event["token"]].end = event["at"]
            case "batch" if not found[event["token"]].begun:
                found[event["token"]].begun = event["at"]
            case "frozen" | "killed" as how:
                for one in found.values():
                    if one.driver == event["target"] and one.end > event["at"]:
                        one.silenced, one.silenced_at = how, event["at"]
    _link([found[token] for token in sorted(found)], commits)
    return [found[token] for token in sorted(found)]


def _link(held: list[Holding], commits: Mapping[int, float]) -> None:
    for index, one in enumerate(held):
        if one.silenced == "killed":
            one.end = one.silenced_at
        if index:
            before = held[index - 1]
            one.cause = before.silenced or "given away"
            one.cause_at = before.silenced_at or before.end
        one.committed = min((at for at in commits.values() if at > one.begun > 0), default=0.0)


def tokens_not_rising(events: Iterable[Event]) -> list[str]:
    """Return every grant with a smaller token. Must be empty."""
    greatest, found = 0, []
    for event in sorted(events, key=lambda event: event["at"]):
        if event["what"] != "granted" or event["token"] == greatest:
            continue  # the query is restarted under the same grant
        if event["token"] < greatest:
            found.append(f"{event['member']} got token {event['token']} after {greatest}")
        greatest = max(greatest, event["token"])
    return found


def takeovers(held: list[Holding], ttl: float) -> list[dict[str, Any]]:
    """Return the seconds from a driver's end to the next one's first batch.

    The lease and a cold start of Spark stand beside them. The cold start is the first driver's,
    which took over from no other.
    """
    cold = next((one.committed - one.start for one in held if one.committed), 0.0)
    return [
        {
            "cause": one.cause,
            "driver": one.driver,
            "until_granted": round(one.start - one.cause_at, 2) if one.cause_at else None,
            "until_begun": round(one.begun - one.start, 2),
            "until_committed": round(one.committed - one.begun, 2),
            "all": round(one.committed - (one.cause_at or one.start), 2),
            "lease_and_cold_start": round(ttl + cold, 2) if one.cause_at else None,
        }
        for one in held
        if one.committed
    ]


def timeline(
    events: list[Event], held: list[Holding], commits: Mapping[int, float]
) -> dict[str, Any]:
    """Return the data of the time line, in seconds since the first event."""
    began = min(event["at"] for event in events)

    def since(at: float) -> float:
        return round(at - began, 3)

    def committer(at: float) -> str:
        # The driver that has begun a batch last: its successor has not begun any yet.
        return max((one for one in held if 0 < one.begun < at), key=lambda one: one.begun).driver

    drivers = {one["target"]: since(one["at"]) for one in events if one["what"] == "started"}
    ends = {
        event["target"]: since(event["at"])
        for event in events
        if event["what"] in ("killed", "gone")
    }
    return {
        "drivers": {
            name: [start, ends.get(name, since(max(event["at"] for event in events)))]
            for name, start in drivers.items()
            if name != SENDER
        },
        "up": {one["member"]: since(one["at"]) for one in events if one["what"] == "joined"},
        "held": [
            asdict(one)
            | {
                "start": since(one.start),
                "end": since(one.end),
                "silenced_at": since(one.silenced_at),
            }
            for one in held
        ],
        "commits": [[number, since(at), committer(at)] for number, at in sorted(commits.items())],
        "mishaps": [
            [event["what"], event["target"], since(event["at"])]
            for event in events
            if event["what"] in ("killed", "frozen", "thawed")
        ],
        "refused": [
            [one["member"], since(one["at"])] for one in events if one["what"] == "refused"
        ],
        "seconds": since(max(event["at"] for event in events)),
    }

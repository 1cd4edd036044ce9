"""What is checked afterwards, from what lies in Redis and in the files, and from the notes: pure functions.

They trust neither the guards nor Spark: what was accepted is judged by the tokens beside it, what was counted by
comparison with one plain pass.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
from flights_demo.events import Event

from pipeline_demo.plain import GRAIN

Entry = dict[str, Any]  # of the list in Redis: a fence that was raised, or a part that was accepted


def differences(got: Mapping[Any, Any], expected: Mapping[Any, Any]) -> list[str]:
    """Every key whose numbers are not exactly the expected ones. Must be empty."""
    return [
        f"{key}: {got.get(key)}, expected {expected.get(key)}"
        for key in sorted(got.keys() | expected.keys())
        if got.get(key) != expected.get(key)
    ]


def stale_parts(accepted: Iterable[Entry]) -> list[str]:
    """Every part that Redis took behind a greater token, or behind a greater token's fence. Must be empty."""
    greatest, found = 0, []
    for one in accepted:
        token = one.get("fence", one.get("token"))
        if "token" in one and token < greatest:
            what = f"part {one['part']} of batch {one['batch']}"
            found.append(f"{what} by {one['driver']} with token {token} after {greatest}")
        greatest = max(greatest, token)
    return found


def doubled_parts(accepted: Iterable[Entry]) -> list[str]:
    """Every part that Redis took more than once. Must be empty."""
    times = Counter((one["batch"], one["part"]) for one in accepted if "token" in one)
    return [
        f"part {part} of batch {batch}: {count} times"
        for (batch, part), count in sorted(times.items())
        if count > 1
    ]


def stale_rows(rows: pd.DataFrame) -> list[str]:
    """Every batch that was published behind one with a greater token. Must be empty."""
    greatest, found = 0, []
    in_order = rows[["batch", "token"]].drop_duplicates().itertuples(index=False, name=None)
    for batch, token in in_order if len(rows) else ():
        if token < greatest:
            found.append(f"batch {batch} with token {token} after {greatest}")
        greatest = max(greatest, token)
    return found


def doubled_rows(rows: pd.DataFrame) -> list[str]:
    """Every batch with two rows about the same. Must be empty."""
    again = rows[rows.duplicated(["batch", *GRAIN])]
    return [
        f"batch {batch}: {count:,} rows" for batch, count in again.groupby("batch").size().items()
    ]


# ── who had the role, and what ended it ──────────────────────────────────────────────────────


@dataclass(kw_only=True)
class Holding:
    """One driver had the role from `start` to `end`, by its own account; a killed one until then."""

    driver: str
    token: int
    start: float
    end: float
    silenced: str = ""  # "frozen" or "killed", where that ended it
    silenced_at: float = 0.0
    cause: str = "start"  # what ended the one before
    cause_at: float = 0.0
    begun: float = 0.0  # the first batch was given to its function
    committed: float = 0.0  # and was committed by Spark


def holdings(events: Iterable[Event], commits: Mapping[int, float]) -> list[Holding]:
    """By token. What was never let go ends with the last event."""
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
    """Every grant with a token that is no greater than the one before. Must be empty."""
    greatest, found = 0, []
    for event in sorted(events, key=lambda event: event["at"]):
        if event["what"] != "granted" or event["token"] == greatest:
            continue  # the query is started again under the grant it has
        if event["token"] < greatest:
            found.append(f"{event['member']} got token {event['token']} after {greatest}")
        greatest = max(greatest, event["token"])
    return found


def takeovers(held: list[Holding], ttl: float) -> list[dict[str, Any]]:
    """What passed, in seconds, from the end of a driver to the next one's first batch.

    Beside it: the lease, and what Spark itself took for the very first one, which took over from nobody.
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
    """What the picture shows, in seconds since the first event."""
    began = min(event["at"] for event in events)

    def since(at: float) -> float:
        return round(at - began, 3)

    def who(at: float) -> str:
        # A batch is committed by who has begun one last: its successor has not begun any yet.
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
            if name != "sender"
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
        "commits": [[number, since(at), who(at)] for number, at in sorted(commits.items())],
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

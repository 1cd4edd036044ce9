"""Check the outputs and the notes afterwards, by pure functions.

They trust neither Rink nor the workers. They find wrong orders, losses and repetitions in the
outputs themselves, and compare each state with that of one plain pass.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from common.checks import repeated, stale_writes
from common.events import Event

from streams_demo.legs import Aircraft, Histories

EPSILON_S = 0.05
"""An output's time may be this much later than the mishap that ended its writer."""


@dataclass(frozen=True, slots=True)
class Step:
    """Hold one output state: the aircraft `key` after a leg."""

    partition: int
    at: float
    worker: str
    token: int
    key: str
    aircraft: Aircraft


def by_partition(steps: Iterable[Step]) -> dict[int, list[Step]]:
    grouped: dict[int, list[Step]] = defaultdict(list)
    for step in steps:
        grouped[step.partition].append(step)
    return grouped


def duplicates(steps: Iterable[Step]) -> list[str]:
    """Return every leg that was put out more than once. Must be empty."""
    return repeated(Counter(f"leg {step.aircraft.number} of {step.key}" for step in steps))


def lost(steps: Iterable[Step], expected: Histories) -> list[str]:
    """Return every leg that was not put out. Must be empty."""
    seen: dict[str, set[int]] = defaultdict(set)
    for step in steps:
        seen[step.key].add(step.aircraft.number)
    return [
        f"leg {state.number} of {key}"
        for key, history in expected.items()
        for state in history
        if state.number not in seen[key]
    ]


def order_violations(steps: Iterable[Step], partition_of: Callable[[str], int]) -> list[str]:
    """Return every leg after a later one, or in a wrong partition."""
    reached: dict[str, int] = {}
    found = []
    for step in steps:
        key, number = step.key, step.aircraft.number
        if step.partition != partition_of(key):
            found.append(f"leg {number} of {key} in partition {step.partition}")
        if number < reached.get(key, 0):
            found.append(f"leg {number} of {key} by {step.worker} after leg {reached[key]}")
        reached[key] = max(number, reached.get(key, 0))
    return found


def stale(steps: Iterable[Step]) -> list[str]:
    """Return every accepted output with a stale token. Must be empty."""
    return stale_writes((f"partition {step.partition}", step.worker, step.token) for step in steps)


def wrong_states(steps: Iterable[Step], expected: Histories) -> list[str]:
    """Return every state that differs from the plain pass. Must be empty."""
    found = []
    for step in steps:
        history = expected.get(step.key, [])
        number = step.aircraft.number
        right = history[number - 1] if 0 < number <= len(history) else None
        if step.aircraft != right:
            found.append(f"{step.key}: {step.aircraft}, expected {right}")
    return found


# ── owners and their ends ────────────────────────────────────────────────────────────────────


OVERRUNS = ("lost its session", "the last commit of")


@dataclass(frozen=True, slots=True)
class Mishap:
    at: float
    worker: str
    how: str  # frozen, killed, deploy or overran


def mishaps(events: Iterable[Event]) -> list[Mishap]:
    hows = {"frozen": "frozen", "killed": "killed", "terminated": "deploy"}
    return [
        Mishap(event["at"], event["target"], hows[event["what"]])
        for event in events
        if event["what"] in hows
    ]


def overruns(events: Iterable[Event]) -> list[Mishap]:
    """Return the mishaps that workers reported and the demo did not cause."""
    return [
        Mishap(event["at"], event["member"], "overran")
        for event in events
        if event["what"] == "warned" and any(what in event["why"] for what in OVERRUNS)
    ]


def owners(events: Iterable[Event], processor: str) -> dict[int, list[tuple[int, str, float]]]:
    """Return the grants of each partition by token: token, worker, time."""
    found: dict[int, set[tuple[int, str, float]]] = defaultdict(set)
    for event in events:
        if event["what"] == "granted" and event["processor"] == processor:
            found[event["partition"]].add((event["token"], event["member"], event["at"]))
    return {partition: sorted(grants) for partition, grants in found.items()}


Again = tuple[int, int, str, str, int]  # partition, token, worker, key, number


def unexplained_again(
    again: Iterable[Again],
    steps: Iterable[Step],
    owned: dict[int, list[tuple[int, str, float]]],
    happened: list[Mishap],
    window: int,
) -> list[str]:
    """Return the repeated legs that are no window of an unclean end."""
    found = []
    for (partition, token), count in again_by_origin(again, steps).items():
        owner = next((grant for grant in owned.get(partition, []) if grant[0] == token), None)
        what = f"partition {partition}: {count} legs that were put out with token {token}"
        if count > window:
            found.append(f"{what}, more than {window}")
        elif owner is None:
            found.append(f"{what}, which nobody was granted")
        elif not silenced(owner, happened):
            found.append(f"{what}, but {owner[1]} ended well")
    return found


def again_by_origin(again: Iterable[Again], steps: Iterable[Step]) -> Counter[tuple[int, int]]:
    """Return the number of repeated legs of each partition and token.

    The token is that of the grant that had put them out. The uncommitted legs of one owner may come
    again to several: the next owner need not process all of them.
    """
    token_of = {(step.key, step.aircraft.number): step.token for step in steps}
    legs = {(partition, key, number) for partition, _, _, key, number in again}
    return Counter((partition, token_of.get((key, number), 0)) for partition, key, number in legs)


def silenced(owner: tuple[int, str, float], happened: list[Mishap]) -> bool:
    """Return whether a freeze, kill or overrun hit an owner after its grant."""
    _, worker, granted_at = owner
    return any(
        one.worker == worker and one.how != "deploy" and one.at > granted_at for one in happened
    )


def gaps(steps: Iterable[Step], happened: list[Mishap]) -> dict[str, list[float]]:
    """Return the pauses of partitions, by the end of their owners.

    The key is "" if the owner stayed. Each pause is from one batch to the next: the states of one
    batch all have the same time.
    """
    found: dict[str, list[float]] = defaultdict(list)
    for outputs in by_partition(steps).values():
        for earlier, later in pairwise(outputs):
            if earlier.at == later.at:
                continue
            how = "" if earlier.token == later.token else ended_by(earlier, later, happened)
            found[how].append(later.at - earlier.at)
    return dict(found)


def ended_by(earlier: Step, later: Step, happened: list[Mishap]) -> str:
    for one in _before(later, happened):
        # A worker that was asked to leave goes on for a while; a silent one does not.
        if one.worker == earlier.worker and (
            one.how == "deploy" or one.at > earlier.at - EPSILON_S
        ):
            return one.how
    return "rebalanced"


def _before(step: Step, happened: list[Mishap]) -> Iterator[Mishap]:
    """Return the mishaps before a step, the newest first."""
    return (one for one in reversed(happened) if one.at < step.at)

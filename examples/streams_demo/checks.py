"""What is checked afterwards, from what was written where: pure functions.

They trust neither Rink nor the workers: order, losses and repetitions are looked for in the outputs
themselves, and each state is compared with that of one plain pass.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from flights_demo.events import Event

from streams_demo.legs import Aircraft, Histories

EPSILON_S = (
    0.05  # an output may bear a time that is as much later than the mishap that ended its writer
)


@dataclass(frozen=True, slots=True)
class Step:
    """One state that was put out: the aircraft `key` after a leg."""

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
    """Every leg that was put out once more. Must be empty."""
    times = Counter((step.key, step.aircraft.number) for step in steps)
    return [
        f"leg {number} of {key}: {count} times"
        for (key, number), count in times.items()
        if count > 1
    ]


def lost(steps: Iterable[Step], expected: Histories) -> list[str]:
    """Every leg that was not put out. Must be empty."""
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
    """Every leg that came after a later one of its aircraft, or in another partition. Must be empty."""
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
    """Every output let through after one with a greater token. Must be empty."""
    highest: dict[int, int] = {}
    found = []
    for step in steps:
        before = highest.get(step.partition, 0)
        if step.token < before:
            found.append(
                f"partition {step.partition}: {step.worker} wrote with {step.token} after {before}"
            )
        highest[step.partition] = max(step.token, before)
    return found


def wrong_states(steps: Iterable[Step], expected: Histories) -> list[str]:
    """Every state that is not what one plain pass has after that leg. Must be empty."""
    found = []
    for step in steps:
        history = expected.get(step.key, [])
        number = step.aircraft.number
        right = history[number - 1] if 0 < number <= len(history) else None
        if step.aircraft != right:
            found.append(f"{step.key}: {step.aircraft}, expected {right}")
    return found


# ── who had what, and what ended it ──────────────────────────────────────────────────────────


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
    """When a worker told that it had lost its session, or could not commit in time: by nobody's order."""
    return [
        Mishap(event["at"], event["member"], "overran")
        for event in events
        if event["what"] == "warned" and any(what in event["why"] for what in OVERRUNS)
    ]


def owners(events: Iterable[Event], processor: str) -> dict[int, list[tuple[int, str, float]]]:
    """For each partition, who was granted it: token, worker, when; by token."""
    found: dict[int, set[tuple[int, str, float]]] = defaultdict(set)
    for event in events:
        if event["what"] == "granted" and event["processor"] == processor:
            found[event["partition"]].add((event["token"], event["member"], event["at"]))
    return {partition: sorted(ones) for partition, ones in found.items()}


Again = tuple[int, int, str, str, int]  # partition, token, worker, key, number


def unexplained_again(
    again: Iterable[Again],
    steps: Iterable[Step],
    owned: dict[int, list[tuple[int, str, float]]],
    happened: list[Mishap],
    window: int,
) -> list[str]:
    """What came again, but is not of the uncommitted window of an owner that did not end in order."""
    found = []
    for (partition, token), count in again_by_origin(again, steps).items():
        owner = next((one for one in owned.get(partition, []) if one[0] == token), None)
        what = f"partition {partition}: {count} legs that were put out with token {token}"
        if count > window:
            found.append(f"{what}, more than {window}")
        elif owner is None:
            found.append(f"{what}, which nobody was granted")
        elif not silenced(owner, happened):
            found.append(f"{what}, but {owner[1]} ended well")
    return found


def again_by_origin(again: Iterable[Again], steps: Iterable[Step]) -> Counter[tuple[int, int]]:
    """How many legs of each partition and token came again: those of the grant that had put them out.

    What one owner left uncommitted may come again to several: the next one need not get through all of it.
    """
    token_of = {(step.key, step.aircraft.number): step.token for step in steps}
    legs = {(partition, key, number) for partition, _, _, key, number in again}
    return Counter((partition, token_of.get((key, number), 0)) for partition, key, number in legs)


def silenced(owner: tuple[int, str, float], happened: list[Mishap]) -> bool:
    """Whether something that is no deploy hit an owner after its grant."""
    _, worker, granted_at = owner
    return any(
        one.worker == worker and one.how != "deploy" and one.at > granted_at for one in happened
    )


def gaps(steps: Iterable[Step], happened: list[Mishap]) -> dict[str, list[float]]:
    """For how long a partition put out nothing, by what ended its owner; "" where nothing did.

    Each is from one batch to the next: the states of one batch all bear one time.
    """
    found: dict[str, list[float]] = defaultdict(list)
    for ones in by_partition(steps).values():
        for earlier, later in pairwise(ones):
            if earlier.at == later.at:
                continue
            how = "" if earlier.token == later.token else ended_by(earlier, later, happened)
            found[how].append(later.at - earlier.at)
    return dict(found)


def ended_by(earlier: Step, later: Step, happened: list[Mishap]) -> str:
    for one in _before(later, happened):
        # Who was told to leave goes on for a while; who fell silent does not.
        if one.worker == earlier.worker and (
            one.how == "deploy" or one.at > earlier.at - EPSILON_S
        ):
            return one.how
    return "rebalanced"


def _before(step: Step, happened: list[Mishap]) -> Iterator[Mishap]:
    """What had happened by then, the newest first."""
    return (one for one in reversed(happened) if one.at < step.at)

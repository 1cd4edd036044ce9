"""Check the events and the writes afterwards, by pure functions.

They trust neither Rink nor the store. They find overlaps in the processes' own event files, and
doubled, lost and stale writes in the list of accepted writes.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from common.checks import differences, stale_writes
from common.events import Event

from flights_demo.data import Total, Totals


@dataclass(frozen=True, slots=True)
class Holding:
    """Hold the time in which one member had one role, by its own account."""

    role: str
    member: str
    token: int
    start: float
    end: float
    silenced: str = ""  # "frozen" or "killed", where that ended it
    silenced_at: float = 0.0

    def claim_end(self, lease_left: float) -> float:
        """Return the time until which no other member may have the role.

        For a member that fell silent it is the end of its lease, at least `lease_left` after the
        silence. Its own file says that it let go after the thaw, or never.
        """
        return self.silenced_at + lease_left if self.silenced else self.end


def holdings(events: Iterable[Event]) -> list[Holding]:
    """Return the holdings by start; one that was never let go has no end."""
    silences: dict[str, list[tuple[float, str]]] = defaultdict(list)
    begun: dict[tuple[str, str, int], float] = {}
    ended: list[tuple[tuple[str, str, int], float, float]] = []
    for event in sorted(events, key=lambda event: event["at"]):
        match event["what"]:
            case "frozen" | "killed" as how:
                silences[event["target"]].append((event["at"], how))
            case "granted":
                begun[event["member"], event["role"], event["token"]] = event["at"]
            case "released":
                key = event["member"], event["role"], event["token"]
                ended.append((key, begun.pop(key), event["at"]))
    ended += [(key, start, float("inf")) for key, start in begun.items()]
    found = []
    for (member, role, token), start, end in ended:
        at, how = next(((at, how) for at, how in silences[member] if start <= at < end), (0.0, ""))
        last = at if how == "killed" else end
        found.append(Holding(role, member, token, start, last, how, at))
    return sorted(found, key=lambda holding: holding.start)


def by_role(held: Iterable[Holding]) -> dict[str, list[Holding]]:
    grouped: dict[str, list[Holding]] = defaultdict(list)
    for holding in held:
        grouped[holding.role].append(holding)
    return grouped


def overlaps(held: Iterable[Holding], lease_left: float) -> list[str]:
    """Return every grant of a role that another member had. Must be empty."""
    found = []
    for role, ones in by_role(held).items():
        for index, later in enumerate(ones):
            for earlier in ones[:index]:
                seconds = earlier.claim_end(lease_left) - later.start
                if earlier.member != later.member and seconds > 0:
                    early = f"{later.member} got it {seconds:.3f} s too early"
                    found.append(f"{role}: {early}, from {earlier.member}")
    return found


def frozen_overlaps(held: Iterable[Holding]) -> list[float]:
    """Return how long thawed processes still believed in roles of others.

    This cannot be prevented: the process does not know of its loss yet. The store refuses its
    writes.
    """
    return [
        min(frozen.end, later.end) - later.start
        for ones in by_role(held).values()
        for index, frozen in enumerate(ones)
        if frozen.silenced == "frozen"
        for later in ones[index + 1 :]
        if later.member != frozen.member and later.start < frozen.end
    ]


def tokens_not_rising(held: Iterable[Holding]) -> list[str]:
    """Return every grant without a greater token. Must be empty."""
    return [
        f"{role}: {later.member} got token {later.token} after {earlier.member}'s {earlier.token}"
        for role, ones in by_role(held).items()
        for earlier, later in pairwise(ones)
        if earlier.member != later.member and later.token <= earlier.token
    ]


def stale_accepted(accepted: Iterable[tuple[str, int, str, int | None, int]]) -> list[str]:
    """Return every accepted write with a stale token. Must be empty."""
    return stale_writes((role, member, token) for role, token, member, _, _ in accepted)


def wrong_chunks(
    accepted: Iterable[tuple[str, int, str, int | None, int]], sizes: Mapping[str, int]
) -> list[str]:
    """Return every job that its chunks do not cover once. Must be empty."""
    reached = dict.fromkeys(sizes, 0)
    found = []
    for role, _token, member, first, count in accepted:
        if first is None:
            continue  # the board
        if first != reached[role]:
            how = "again" if first < reached[role] else "with a hole before it"
            found.append(f"{role}: {member} wrote from {first} {how} ({reached[role]} reached)")
        reached[role] = max(reached[role], first + count)
    found += [
        f"{role}: {reached[role]} of {sizes[role]}"
        for role in sizes
        if reached[role] != sizes[role]
    ]
    return found


def wrong_totals(got: Totals, expected: Totals) -> list[str]:
    """Return every carrier and month whose total differs. Must be empty."""
    return differences(_by_name(got), _by_name(expected))


def _by_name(totals: Totals) -> dict[str, Total]:
    return {f"{carrier} in month {month}": total for (carrier, month), total in totals.items()}


def grand_total(totals: Totals) -> Total:
    return sum(totals.values(), Total())


def gaps(held: Iterable[Holding], phases: list[tuple[float, str]]) -> dict[str, list[float]]:
    """Return the gaps without a holder, by the end of the holder before.

    They are meant for the long-held roles: a job's role is free most of the time, and no process
    waits for it.
    """
    found: dict[str, list[float]] = defaultdict(list)
    for ones in by_role(held).values():
        for earlier, later in pairwise(ones):
            if earlier.silenced:
                found[earlier.silenced].append(later.start - earlier.silenced_at)
            else:
                planned = phase_at(phases, earlier.end).startswith("deploy")
                kind = "replaced" if planned else "rebalanced"
                found[kind].append(later.start - earlier.end)
    return dict(found)


def phase_at(phases: list[tuple[float, str]], at: float) -> str:
    return next((name for start, name in reversed(phases) if start <= at), "")


def moves_in_deploy(held: Iterable[Holding], phases: list[tuple[float, str]]) -> dict[str, int]:
    """Return how often each role changed its holder during the deploy."""
    return {
        role: sum(
            phase_at(phases, later.start).startswith("deploy") and earlier.member != later.member
            for earlier, later in pairwise(ones)
        )
        for role, ones in by_role(held).items()
    }


def versions(events: Iterable[Event]) -> tuple[dict[int, list[str]], list[str]]:
    """Return the members' common version log, and where two logs differ."""
    seen: dict[int, list[str]] = {}
    differing = []
    for event in events:
        if event["what"] == "version":
            known = seen.setdefault(event["number"], event["ranks"])
            if known != event["ranks"]:
                differing.append(f"version {event['number']}: {known} and {event['ranks']}")
    return dict(sorted(seen.items())), differing


def rank_histories(log: Mapping[int, list[str]]) -> list[list[str]]:
    """Return the members that have had each rank, in order."""
    histories: list[list[str]] = []
    for _number, ranks in sorted(log.items()):
        for rank, member in enumerate(ranks):
            if rank == len(histories):
                histories.append([])
            if not histories[rank] or histories[rank][-1] != member:
                histories[rank].append(member)
    return histories


def rank_moves(events: Iterable[Event]) -> dict[str, dict[int, int]]:
    """Return how often each rank changed its member, by phase of the demo."""
    moves: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    phase, newest, had = "", 0, dict[int, str]()
    for event in events:
        if event["what"] == "phase":
            phase = event["name"].split()[0]  # "deploy 2/3" is "deploy"
        elif event["what"] == "version" and event["number"] > newest:
            newest = event["number"]
            for rank, member in enumerate(event["ranks"]):
                moves[phase][rank] += had.get(rank, member) != member
                had[rank] = member
    return {phase: dict(ranks) for phase, ranks in moves.items()}

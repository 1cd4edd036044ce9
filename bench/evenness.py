"""Measure how evenly the schemes spread jobs over ranks.

It also measures how many jobs move, and how fast names are ranked. Jump gives each name a rank at
random, so its figures depend on the names: they are averages over 25 sets of them, with the worst
set beside. Balanced does not depend on the part of a name before its number.
"""

import argparse
import json
import statistics
import time

from rink.core.schemes import Scheme, find

CASES = [(5, 16), (8, 64), (10, 1000), (10, 5432)]
NAME_SETS = 25
TIMED_NAMES = 100_000


def spread(scheme: Scheme, ranks: int, names: list[str]) -> dict[str, float]:
    """Return the spread of one set of names.

    It has the fullest rank by the mean, the idle ranks, and the jobs that move.
    """
    owners = [scheme.rank(name, ranks) for name in names]
    joined = [scheme.rank(name, ranks + 1) for name in names]
    left = [scheme.rank(name, ranks - 1) for name in names]
    loads = [owners.count(rank) for rank in range(ranks)]
    return {
        "max_by_mean": max(loads) * ranks / len(names),
        "idle_ranks": loads.count(0),
        "moves_on_join": sum(a != b for a, b in zip(owners, joined, strict=True)),
        "moves_on_leave": sum(a != b for a, b in zip(owners, left, strict=True)),
    }


def evenness(kind: str, ranks: int, jobs: int) -> dict[str, str | float]:
    scheme = find("jump" if kind == "jump" else f"balanced:{jobs}")
    sets = [
        spread(scheme, ranks, [f"jobs-{number}/{job}" for job in range(jobs)])
        for number in range(NAME_SETS)
    ]
    means = {key: statistics.mean(one[key] for one in sets) for key in sets[0]}
    return {
        "scheme": kind,
        "ranks": ranks,
        "jobs": jobs,
        "worst_max_by_mean": max(one["max_by_mean"] for one in sets),
        **means,
    }


def names_per_second(scheme: Scheme, names: list[str], ranks: int) -> float:
    """Return the best rate of five runs.

    Other work on the machine only ever adds to the time.
    """
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for name in names:
            scheme.rank(name, ranks)
        best = min(best, time.perf_counter() - start)
    return len(names) / best


def speeds() -> list[dict[str, str | float]]:
    # Names of 12 bytes; no scheme keeps anything per name, so each costs what a new one does.
    kinds = {
        "jump": [f"name-{number:07}" for number in range(TIMED_NAMES)],
        "balanced:1000": [f"orders-x/{100 + number % 900}" for number in range(TIMED_NAMES)],
    }
    return [
        {"scheme": kind, "ranks": ranks, "names_per_s": names_per_second(find(kind), names, ranks)}
        for kind, names in kinds.items()
        for ranks in (3, 10, 64)
    ]


def show(rows: list[dict[str, str | float]]) -> None:
    heads = list(rows[0])
    print("  ".join(f"{head:>{width(head)}}" for head in heads))
    for row in rows:
        print("  ".join(f"{text(row[head]):>{width(head)}}" for head in heads))
    print()


def width(head: str) -> int:
    return max(len(head), 13 if head == "scheme" else 5)


def text(value: str | float) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"
    return str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="write JSON instead of tables")
    asked = parser.parse_args()
    spreads = [evenness(kind, *case) for case in CASES for kind in ("jump", "balanced")]
    timed = speeds()
    if asked.json:
        print(json.dumps({"spread": spreads, "speed": timed}, indent=2))
    else:
        show(spreads)
        show(timed)


if __name__ == "__main__":
    main()

"""Measure calls per second on one thread.

The loops are as short as possible, and the same for all functions.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

_fresh = itertools.count()


def rate(work: Callable[[], None], calls: int, rounds: int) -> list[float]:
    """Return the calls per second of each round."""
    work()  # a round that does not count: caches fill
    rates = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        rates.append(calls / (time.perf_counter() - start))
    return rates


def each(function: Callable[[str], Any], names: list[str], times: int) -> Callable[[], None]:
    def work() -> None:
        for _ in range(times):
            for name in names:
                function(name)

    return work


def released(function: Callable[[str], Any], names: list[str], times: int) -> Callable[[], None]:
    def work() -> None:
        for _ in range(times):
            for name in names:
                function(name).release()

    return work


def fresh_names(count: int) -> list[str]:
    """Return unused names of 12 bytes."""
    return [f"n{next(_fresh):011d}" for _ in range(count)]


def fresh(function: Callable[[str], Any], count: int, rounds: int) -> list[float]:
    """Return the rates for names that are new each time.

    A granted role is released.
    """
    lists = [fresh_names(count) for _ in range(rounds + 1)]
    at = iter(lists)

    def work() -> None:
        for name in next(at):
            role = function(name)
            if role is not None:
                role.release()

    return rate(work, count, rounds)


def get_role(rink: Any, rounds: int, size: int) -> dict[str, list[float]]:
    """Measure every kind of call, about `size` calls a round."""
    names = [f"known-{index:06d}" for index in range(1000)]
    mine = [name for name in names if rink.owner(name) == rink.name]
    theirs = [name for name in names if rink.owner(name) not in {None, rink.name}]
    times = max(1, size // len(names))
    get = rink.get_role
    found = dict.fromkeys(theirs, 1)
    kept = {name: get(name) for name in mine}
    rates = {
        "dict": rate(each(found.get, theirs, 2 * times), 2 * times * len(theirs), rounds),
        "other": rate(each(get, theirs, 2 * times), 2 * times * len(theirs), rounds),
        "held": rate(released(get, mine, times), times * len(mine), rounds),
    }
    for role in kept.values():
        role.release()
    rates["mine"] = rate(released(get, mine, times), times * len(mine), rounds)
    rates["new"] = fresh(get, size // 4, rounds)
    return rates

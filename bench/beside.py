"""Compare the hand-overs of one role between several trees of Rink.

The trees take turns, in one etcd, with bare puts between their turns. So all have the same machine
in the same state: of 300 hand-overs each, a difference of 3 % can be seen.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from pathlib import Path

import attrs
from arena import etcd
from parts.handover import PAUSE_S, PUTS, PingPong, put_to_event


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trees", nargs="+", type=Path, metavar="TREE", help="a work tree")
    parser.add_argument("--face", choices=["blocking", "asyncio"], default="blocking")
    parser.add_argument("--count", type=int, default=300, help="hand-overs of each tree")
    given = parser.parse_args()
    limits: list[float] = []
    gaps: list[list[float]] = [[] for _ in given.trees]
    with etcd(False, lambda *_: None) as arena:
        putter, watcher = arena.probe(), arena.probe()
        watcher.ask("watch", prefix="bench-limit/")
        of_trees = [attrs.evolve(arena, tree=tree.resolve()) for tree in given.trees]
        turns = [PingPong(one, 1, "one", given.face) for one in of_trees]
        for number in range(given.count + 1):
            for which in random.sample(range(len(turns)), len(turns)):
                limit = put_to_event(putter, watcher, PUTS)
                time.sleep(PAUSE_S)
                (gap,), _ = turns[which].hand_over()
                if number:  # the first ones warm the processes up
                    limits += limit
                    gaps[which].append(gap)
        for pair in (*turns, putter, watcher):
            pair.close()
    put = statistics.median(limits)
    print(f"medians of {given.count}, {given.face}; bare put → event {1000 * put:.2f} ms")
    for tree, of_tree in zip(given.trees, gaps, strict=True):
        gap = statistics.median(of_tree)
        print(f"{1000 * gap:.2f} ms, {gap / put:.2f} x the bare put: {tree}")


if __name__ == "__main__":
    main()

"""Run a member of a group in a pod, and work under its roles.

Its name is the pod's, from the downward API (`POD_NAME`). It writes the events of
`rink.testing.history` to a file of its own: `gained` when work under a role begins, `let go` when
it has ended, before the role is released. Times are of CLOCK_BOOTTIME. It also writes the lines
`joined`, `rank` (None if it has lost its rank) and `left`.

The file `ready` in the working folder says that it has joined, for a readiness probe.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import rink
from rink.engine.clock import SYSTEM


class Events:
    """Write events to the pod's file, each one flushed."""

    def __init__(self, path: Path, who: str) -> None:
        self._file = path.open("a", buffering=1)
        self._lock = threading.Lock()
        self._who = who

    def say(self, what: str, **more: object) -> None:
        """Write one event with the time at which it is written."""
        with self._lock:
            event = {"what": what, "who": self._who, "at": SYSTEM.now(), **more}
            self._file.write(json.dumps(event) + "\n")


def options() -> argparse.Namespace:
    """Return what the pod's spec asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--etcd", required=True, help="where etcd answers")
    parser.add_argument("--prefix", required=True, help="of all keys")
    parser.add_argument(
        "--events", type=Path, required=True, help="the folder of the files of events"
    )
    parser.add_argument("--roles", required=True, help="names, with commas between them")
    parser.add_argument("--ttl", type=float, required=True)
    for name in ("rebalance-delay", "initial-delay", "leave-delay", "leave-timeout"):
        parser.add_argument(f"--{name}", type=float, required=True)
    parser.add_argument("--handover-wait", type=float, default=0.0)
    parser.add_argument("--keep-rank", action="store_true", help="leave for a restart")
    parser.add_argument("--drain", type=float, default=0.0, help="seconds until work has ended")
    parser.add_argument("--exit-at-once", action="store_true", help="let SIGTERM end the program")
    parser.add_argument("--start-delay", type=float, default=0.0, help="seconds before it joins")
    parser.add_argument("--crash", choices=("before-join", "after-join"), help="exit with status 1")
    return parser.parse_args()


def member_settings(chosen: argparse.Namespace) -> dict[str, float]:
    """Return the member's settings.

    `handover_wait` is left out if it is 0, since an older Rink does not know it.
    """
    settings = {
        "rebalance_delay": chosen.rebalance_delay,
        "initial_delay": chosen.initial_delay,
        "leave_delay": chosen.leave_delay,
        "leave_timeout": chosen.leave_timeout,
    }
    if chosen.handover_wait > 0:
        settings["handover_wait"] = chosen.handover_wait
    return settings


def main() -> None:
    """Join, work until SIGTERM, leave in order."""
    chosen = options()
    ending = threading.Event()
    if not chosen.exit_at_once:
        signal.signal(signal.SIGTERM, lambda *_: ending.set())
    ending.wait(chosen.start_delay)
    if chosen.crash == "before-join":
        sys.exit(1)
    name = os.environ["POD_NAME"]
    events = Events(chosen.events / f"{name}.jsonl", name)
    session = rink.Session(chosen.etcd, prefix=chosen.prefix, ttl=chosen.ttl)
    member = rink.Rink(
        session,
        "rollout",
        name=name,
        on_rank_change=lambda rank: events.say("rank", rank=rank),
        **member_settings(chosen),
    )

    def work(role: rink.Role) -> None:
        events.say("gained", role=role.name, token=role.token)
        role.lost.wait()
        time.sleep(chosen.drain)
        events.say("let go", role=role.name, token=role.token)

    for role in chosen.roles.split(","):
        member.on_role(role)(work)
    member.join()
    events.say("joined")
    if chosen.crash == "after-join":
        os._exit(1)
    Path("ready").touch()
    ending.wait()
    member.leave(keep_rank=chosen.keep_rank)
    session.close()
    events.say("left")


if __name__ == "__main__":
    main()

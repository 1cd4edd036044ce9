"""Run kazoo's SetPartitioner in a process, and note when it holds items.

It takes the commands of bench/member.py. The loop is that of kazoo's documentation, but woken by
the event that SetPartitioner sends with each change of state, where the documentation polls.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from typing import Any

from child import now, serve
from kazoo.client import KazooClient

logging.basicConfig(level=logging.CRITICAL)  # of members that are killed, it says much
given = json.loads(sys.argv[1])


class Member:
    def __init__(self, group: str, name: str, boundary: float) -> None:
        self.client = KazooClient(hosts=given["hosts"], timeout=given["timeout"])
        self.client.start()
        self.group, self.name, self.boundary = group, name, boundary
        self.stamps: list[tuple[float, str, str]] = []
        self.held: list[str] = []
        self.acquired_at = 0.0
        self.ends = False

    def hold(self, roles: list[str]) -> None:
        self.changed = self.client.handler.event_object()
        self.partitioner = self.client.SetPartitioner(
            f"/{self.group}",
            set=tuple(roles),
            identifier=self.name,
            time_boundary=self.boundary,
            state_change_event=self.changed,
        )
        self.user = threading.Thread(target=self._use, daemon=True)
        self.user.start()

    def _use(self) -> None:
        partitioner = self.partitioner
        while not self.ends:
            self.changed.clear()
            if partitioner.failed:
                self._let_go()
                return
            if partitioner.release:
                self._let_go()
                partitioner.release_set()
            elif partitioner.acquired and not self.acquired_at:
                at = now()
                self.held = list(partitioner)
                self.stamps += [(at, "gained", role) for role in self.held]
                self.acquired_at = at
            self.changed.wait(1.0)

    def _let_go(self) -> None:
        at = now()
        self.stamps += [(at, "let go", role) for role in self.held]
        self.held, self.acquired_at = [], 0.0

    def leave(self) -> None:
        self.ends = True
        self.changed.set()
        self.user.join()
        self._let_go()
        self.partitioner.finish()
        self.client.stop()


members: dict[str, Member] = {}


def join(group: str, names: list[str], boundary: float, roles: int) -> dict[str, Any]:
    """Join, and have the set partitioned: with kazoo the two are one."""
    at = now()
    for name in names:
        members[name] = Member(group, name, boundary)
        members[name].hold([f"role-{index:05d}" for index in range(roles)])
    return {"asked_at": at}


def settled(name: str, roles: int) -> dict[str, Any]:
    """Wait until this many items are held here.

    Return the time of that, and the notes so far.
    """
    member = members[name]
    ends = now() + 100
    while not member.acquired_at or len(member.held) != roles:
        if now() > ends:
            raise TimeoutError(f"{name} holds {len(member.held)} of {roles}")
        time.sleep(0.005)
    return {"at": member.acquired_at, **stamped(name)}


def stamped(name: str) -> dict[str, Any]:
    stamps = members[name].stamps
    taken = stamps[:]
    del stamps[: len(taken)]
    return {"stamps": taken}


def leave(names: list[str], quiet: float = 0.0) -> dict[str, Any]:
    at = now()
    stamps = []
    for name in names:
        members[name].leave()
        stamps += members[name].stamps
        del members[name]
    time.sleep(quiet)
    return {"asked_at": at, "stamps": stamps}


serve({"join": join, "settled": settled, "stamped": stamped, "leave": leave})

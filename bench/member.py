"""Run members in a process, hold roles, and note the times.

`child.Child` drives it. Timed code runs on threads of its own and only appends to a list. All notes
are handed over on request, after the measured time.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import speed
import stages
from child import now, serve

import rink
import rink.aio

logging.basicConfig(level=logging.CRITICAL)  # it speaks of an old etcd, and of starved processes
given = json.loads(sys.argv[1])
Stamp = tuple[float, str, str]


class Blocking:
    """Run a member on the blocking face."""

    face = rink

    def __init__(self, session: Any, group: str, name: str, settings: dict[str, Any]) -> None:
        self.rink = self.face.Rink(session, group, name=name, **settings)
        self.stamps: list[Stamp] = []
        self.ends = threading.Event()
        self.user: Any = None

    def join(self) -> None:
        self.rink.join()

    def hold(self, names: list[str], how: str) -> None:
        user = {"one": self._one, "set": self._set, "threads": self._threads}[how]
        self.user = threading.Thread(target=user, args=(names,), daemon=True)
        self.user.start()

    def _threads(self, names: list[str]) -> None:
        """Hold each role on a thread of its own."""
        for name in names:
            threading.Thread(target=self._one, args=([name],), daemon=True).start()

    def _one(self, names: list[str]) -> None:
        """Hold one role, as a worker with a stop event does."""
        while not self.ends.is_set():
            try:
                role = self.rink.await_role(names[0])
            except rink.ClosedError:
                return
            self.stamps.append((now(), "gained", role.name))
            role.lost.wait()
            self.stamps.append((now(), "let go", role.name))
            role.release()

    def _set(self, names: list[str]) -> None:
        """Hold many roles.

        Lost roles are released before the next change is awaited.
        """
        with self.rink.roles(names) as roles:
            for change in roles:
                what = "gained" if change.gained else "let go"
                self.stamps.append((now(), what, change.role.name))

    def settled(self, timeout: float) -> bool:
        return self.rink.wait_settled(timeout)

    def leave(self, keep_rank: bool) -> float:
        self.ends.set()
        asked_at = now()
        self.rink.leave(keep_rank)
        return asked_at


class Asyncio(Blocking):
    """Run members on the asyncio face, all on one event loop."""

    face = rink.aio

    def join(self) -> None:
        run(self.rink.join())

    def hold(self, names: list[str], how: str) -> None:
        user = {"one": self._one_task, "set": self._set_task}[how]
        self.user = asyncio.run_coroutine_threadsafe(user(names), loop())

    async def _one_task(self, names: list[str]) -> None:
        while not self.ends.is_set():
            try:
                role = await self.rink.await_role(names[0])
            except rink.ClosedError:
                return
            self.stamps.append((now(), "gained", role.name))
            await role.lost.wait()
            self.stamps.append((now(), "let go", role.name))
            role.release()

    async def _set_task(self, names: list[str]) -> None:
        async with self.rink.roles(names) as roles:
            async for change in roles:
                what = "gained" if change.gained else "let go"
                self.stamps.append((now(), what, change.role.name))

    def settled(self, timeout: float) -> bool:
        return run(self.rink.wait_settled(timeout))

    def leave(self, keep_rank: bool) -> float:
        self.ends.set()
        asked_at = now()
        run(self.rink.leave(keep_rank))
        return asked_at


FACES = {"blocking": Blocking, "asyncio": Asyncio}
members: dict[str, Blocking] = {}
sessions: list[Any] = []
_loop: asyncio.AbstractEventLoop | None = None


def loop() -> asyncio.AbstractEventLoop:
    global _loop
    if _loop is None:
        _loop = asyncio.new_event_loop()
        threading.Thread(target=_loop.run_forever, daemon=True).start()
    return _loop


def run(coroutine: Any) -> Any:
    return asyncio.run_coroutine_threadsafe(coroutine, loop()).result()


def session(face: str, shared: bool) -> Any:
    if shared and sessions:
        return sessions[0]
    made = FACES[face].face.Session(
        given["endpoint"], prefix=given["prefix"], ttl=given["ttl"], timeout=given["timeout"]
    )
    sessions.append(made)
    return made


def join(
    group: str,
    names: list[str],
    face: str = "blocking",
    shared: bool = True,
    settings: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Make members and let them join at the same time.

    A failed join is repeated, as a supervisor would do. Hundreds of members in a few processes
    starve each other, and etcd seems not to answer. A failed join may leave its name taken until
    its lease ends, so the next try has another name.
    """
    failed: list[str] = []

    def join_one(name: str) -> tuple[str, Blocking]:
        while True:
            one = FACES[face](session(face, shared), group, name, settings or {})
            try:
                one.join()
            except rink.EtcdUnavailable as error:
                failed.append(str(error))
                if len(failed) > len(names):
                    raise
                name += "-again"
            else:
                return name, one

    at = now()
    with ThreadPoolExecutor(len(names)) as pool:
        fresh = list(pool.map(join_one, names))
    members.update(fresh)
    joined = [name for name, _ in fresh]
    return {"asked_at": at, "joined_at": now(), "names": joined, "failed": failed}


def hold(name: str, roles: int, prefix: str = "role", how: str = "set") -> None:
    members[name].hold([f"{prefix}-{index}" for index in range(roles)], how)


def knows(name: str, other: str) -> None:
    """Wait until a member has the other in its view."""
    until(lambda: any(one.name == other for one in members[name].rink.members))


def held(name: str, roles: int) -> dict[str, Any]:
    """Wait until this many roles are held; return the notes so far."""
    stamps = members[name].stamps

    def holds() -> bool:
        seen = [what for _, what, _ in list(stamps)]
        return seen.count("gained") - seen.count("let go") >= roles

    until(holds)
    return stamped(name)


def stamped(name: str) -> dict[str, Any]:
    """Return the new notes; each is returned once."""
    stamps = members[name].stamps
    taken = stamps[:]
    del stamps[: len(taken)]
    return {"stamps": taken}


def settled(
    names: list[str] | None = None, size: int = 0, timeout: float = 100.0
) -> dict[str, Any]:
    """Wait until all these members see a settled group of this size."""
    ends = now() + timeout
    for name in names or list(members):
        one = members[name]
        while not (one.settled(max(0.0, ends - now())) and one.rink.size >= size):
            if now() > ends:
                raise TimeoutError(
                    f"{name}: not settled at {size}: {one.rink.status().in_the_way[:5]}"
                )
            time.sleep(0.005)
    return {"at": now()}


def leave(names: list[str], keep_rank: bool = False, quiet: float = 0.0) -> dict[str, Any]:
    """Make members leave, and return their notes.

    The answer comes a little later, so that it does not disturb the measured time.
    """
    with ThreadPoolExecutor(len(names)) as pool:
        asked = list(pool.map(lambda name: members[name].leave(keep_rank), names))
    left_at = now()
    time.sleep(quiet)
    stamps = [stamp for name in names for stamp in members[name].stamps]
    for name in names:
        del members[name]
    return {"asked_at": min(asked), "left_at": left_at, "stamps": stamps}


def info(name: str) -> dict[str, Any]:
    one = members[name].rink
    number = one.version.number if one.version else 0
    return {"rank": one.rank, "size": one.size, "version": number}


def calls() -> dict[str, Any]:
    """Return how many requests all sessions have sent, by name."""
    total: dict[str, int] = {}
    for one in sessions:
        for name, count in one.etcd.calls.items():
            total[name] = total.get(name, 0) + count
    return {"calls": total}


def threads() -> dict[str, Any]:
    """Return the names of Python's threads, by the system's thread ids."""
    return {"threads": {str(one.native_id): one.name for one in threading.enumerate()}}


def get_role(name: str, rounds: int, size: int) -> dict[str, Any]:
    """Measure get_role on this thread, and count the requests it sent."""
    gc.collect()
    before = calls()["calls"]
    found = speed.get_role(members[name].rink, rounds, size)
    after = calls()["calls"]
    sent = {kind: after[kind] - before.get(kind, 0) for kind in after}
    return {"rates": found, "sent": {kind: count for kind, count in sent.items() if count}}


def until(happens: Any) -> None:
    ends = now() + 100.0
    while not happens():
        if now() > ends:
            raise TimeoutError("it did not happen within 100 s")
        time.sleep(0.005)


if given.get("trace"):
    stages.install()

serve(
    {
        "join": join,
        "hold": hold,
        "knows": knows,
        "held": held,
        "stamped": stamped,
        "settled": settled,
        "leave": leave,
        "info": info,
        "calls": calls,
        "threads": threads,
        "get_role": get_role,
        "stages": lambda: {"stages": stages.take()},
    }
)
for each in sessions:
    if isinstance(each, rink.aio.Session):
        run(each.close())
    else:
        each.close()

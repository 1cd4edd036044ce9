"""Share one adapter per face for the contract tests, and their waits.

The suite is written once, in blocking style. On the asyncio face every call that waits is carried
into an event loop on a thread of its own (`Portal`); what does not wait is called as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Self

import rink
from rink import aio
from rink.base_rink import Subscription
from rink.core.schemes import rank_of
from rink.engine.clock import SYSTEM, SystemClock
from rink.testing.memory.cluster import MemoryCluster, MemoryEtcd

LONG_S = 20.0
"""Longer than anything here takes, on a busy machine too."""


class ShiftedClock(SystemClock):
    """Real time plus `ahead`. An engine that is nudged sees the new time.

    A short real time would pass before an answer comes, on a busy machine.
    """

    ahead = 0.0

    def now(self) -> float:
        return SYSTEM.now() + self.ahead


class Portal:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="portal", daemon=True)
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run it there, and wait for it; Ctrl-C and errors pass through."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        async def end() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await self.loop.shutdown_asyncgens()
            await self.loop.shutdown_default_executor()

        self.call(end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class _Adapter:
    """Passes on whatever does not wait."""

    def __init__(self, raw: Any, portal: Portal) -> None:
        self.raw = raw
        self.portal = portal

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


class AioLost(_Adapter):
    def wait(self, timeout: float | None = None) -> bool:
        return self.portal.call(self.raw.wait(timeout))


class AioRole(_Adapter):
    @property
    def lost(self) -> AioLost:
        return AioLost(self.raw.lost, self.portal)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.raw.release()


class AioRoleSet(_Adapter):
    @property
    def held(self) -> dict[str, AioRole]:
        return {name: AioRole(role, self.portal) for name, role in self.raw.held.items()}

    def __enter__(self) -> Self:
        self.portal.call(self.raw.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.portal.call(self.raw.__aexit__())

    def __iter__(self) -> Iterator[rink.Change]:
        return _iterate(self.raw, self.portal)


class AioRink(_Adapter):
    def join(self) -> AioRink:
        self.portal.call(self.raw.join())
        return self

    def leave(self, **how: bool) -> None:
        self.portal.call(self.raw.leave(**how))

    def await_role(self, name: str, timeout: float | None = None, **how: Any) -> AioRole:
        async def wait() -> Any:
            return await self.raw.await_role(name, timeout, **how)

        return AioRole(self.portal.call(wait()), self.portal)

    def get_role(self, name: str) -> AioRole | None:
        role = self.raw.get_role(name)
        return None if role is None else AioRole(role, self.portal)

    def wait_settled(self, timeout: float | None = None) -> bool:
        return self.portal.call(self.raw.wait_settled(timeout))

    def wait_ranked(self, timeout: float | None = None) -> int:
        return self.portal.call(self.raw.wait_ranked(timeout))

    def versions(self) -> Iterator[rink.Version]:
        return _iterate(self.raw.versions(), self.portal)

    def roles(self, names: Any) -> AioRoleSet:
        return AioRoleSet(self.raw.roles(names), self.portal)

    def on_role(self, name: str) -> Callable[[Any], Any]:
        decorator = self.raw.on_role(name)

        def decorate(function: Callable[[Any], Any]) -> Any:
            async def body(role: Any) -> None:
                await asyncio.to_thread(function, AioRole(role, self.portal))

            async def register() -> None:
                decorator(body)

            self.portal.call(register())
            return function

        return decorate


def _iterate(iterable: Any, portal: Portal) -> Iterator[Any]:
    iterator = aiter(iterable)
    try:
        while True:
            try:
                yield portal.call(anext(iterator))
            except StopAsyncIteration:
                return
    finally:
        portal.call(iterator.aclose())


class AioSession(_Adapter):
    def close(self, timeout: float | None = None) -> None:
        self.portal.call(self.raw.close(timeout))


class BlockingFace:
    """`rink` as it is."""

    name = "blocking"

    def session(self, endpoints: Any, **settings: Any) -> Any:
        return rink.Session(endpoints, **settings)

    def rink(self, session: Any, group: str, **settings: Any) -> Any:
        return rink.Rink(session, group, **settings)

    def close(self) -> None:
        pass


class AioFace:
    """`rink.aio`, with every wait carried into its loop."""

    name = "aio"

    def __init__(self) -> None:
        self.portal = Portal()

    def session(self, endpoints: Any, **settings: Any) -> Any:
        return AioSession(aio.Session(endpoints, **settings), self.portal)

    def rink(self, session: Any, group: str, **settings: Any) -> Any:
        given = session.raw if isinstance(session, AioSession) else session
        return AioRink(aio.Rink(given, group, **settings), self.portal)

    def close(self) -> None:
        self.portal.close()


QUICK = {"rebalance_delay": 0.0, "initial_delay": 0.0}


TTL_S = 60.0
"""The ttl of a test's session. Leases run on the real clock. With a short ttl they would end if the
machine stood still for some seconds."""


class World:
    """Members on one in-memory etcd, each with a session of its own."""

    def __init__(self, face: Any) -> None:
        self.face = face
        self.cluster = MemoryCluster()
        self.sessions: list[Any] = []

    def etcd_of(self, member: Any) -> MemoryEtcd:
        """The connection of a member, to be cut or made to lose answers."""
        return raw(member)._session.etcd

    def session(self, *, ttl: float = TTL_S, **settings: Any) -> Any:
        session = self.face.session(self.cluster.client(), ttl=ttl, **settings)
        self.sessions.append(session)
        return session

    def make(self, name: str | None = "a", *, group: str = "g", **settings: Any) -> Any:
        """A member that has not joined yet."""
        session = settings.pop("session", None)
        ttl = settings.pop("ttl", TTL_S)
        session = session or self.session(ttl=ttl)
        return self.face.rink(session, group, name=name, **{**QUICK, **settings})

    def join(self, name: str | None = "a", **settings: Any) -> Any:
        """A member that has joined, and is ranked."""
        member = self.make(name, **settings).join()
        until(member, lambda: member.rank is not None)
        return member

    def pair(self, **settings: Any) -> tuple[Any, Any]:
        """Two members, settled: `a` has rank 0 and `b` rank 1."""
        a = self.join("a", **settings)
        b = self.join("b", **settings)
        until(a, lambda: a.size == 2)  # settled is what a view says, and a's may be behind
        assert a.wait_settled(LONG_S)
        assert b.wait_settled(LONG_S)
        assert (a.rank, b.rank) == (0, 1)
        return a, b

    def close(self) -> None:
        for session in self.sessions:
            given = getattr(session, "raw", session)
            given.etcd.heal()
            for engine in given._begin_close(0.0):
                assert engine.left.wait(LONG_S), "a member did not leave"
            given._end_close()
        self.cluster.close()


def records(world, group="g"):
    """The names of the records that lie in etcd."""
    root = f"rink/{group}/members/".encode()
    found = world.cluster.client().range(root, root[:-1] + b"0").kvs
    return {kv.key.removeprefix(root).decode() for kv in found}


def raw(adapted: Any) -> Any:
    """The object of the face itself."""
    return adapted.raw if isinstance(adapted, _Adapter) else adapted


def engine_of(member: Any) -> Any:
    return raw(member)._opened


def until(member: Any, happens: Callable[[], Any], timeout: float = LONG_S) -> Any:
    """Wait over the steps of a member's engine until something is true."""
    engine = engine_of(member)
    end = engine.clock.now() + timeout
    with Subscription(engine) as steps:
        while not (result := happens()):
            assert engine.clock.now() < end, f"it never came to be; {raw(member).status()}"
            steps.wait(0.25)
        return result


def refusal(member: Any, name: str) -> str:
    """Return why the member is not granted a role now, or "" where it is."""
    try:
        member.await_role(name, 0.01).release()
    except rink.RoleTimeout as error:
        return str(error)
    return ""


def owned_by(rank: int, size: int, count: int = 1, prefix: str = "role") -> Any:
    """Return role names that the default scheme maps to a rank."""
    names = (name for i in itertools.count() if rank_of(name := f"{prefix}-{i}", size) == rank)
    found = list(itertools.islice(names, count))
    return found[0] if count == 1 else found


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """The body takes no longer than this."""
    begin = SYSTEM.now()
    yield
    assert SYSTEM.now() - begin < seconds

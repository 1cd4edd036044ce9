"""Check other event loops: trio's, one of sniffio, and none."""

import asyncio
import contextlib
import sys
import warnings
from types import SimpleNamespace

import pytest
import trio
from faces_support import LONG_S, AioFace, World, raw

import rink
from rink import aio
from rink.engine import caller_context as callers_module
from rink.testing.memory.cluster import MemoryCluster

TRIO = "rink.aio needs asyncio, but trio runs here"


@pytest.fixture
def cluster():
    with MemoryCluster() as made:
        yield made


def by_hand(coroutine):
    """Run a coroutine up to where it first waits, with no event loop at all."""
    try:
        coroutine.send(None)
    finally:
        coroutine.close()


def test_aio_under_trio_is_refused_before_anything_is_opened(cluster):
    async def main():
        session = aio.Session(cluster.client())
        member = aio.Rink(session, "g")
        for use in (session.__aenter__, member.join, session.close, member.__aenter__):
            with pytest.raises(rink.UsageError, match=TRIO) as caught:
                await use()
            assert "trio.to_thread.run_sync" in str(caught.value)

    trio.run(main)
    assert cluster.client().range(b"\0", b"\0").kvs == ()


def test_aio_wait_of_a_role_that_asyncio_got_is_refused_under_trio():
    face = AioFace()
    with contextlib.closing(face), contextlib.closing(World(face)) as world:
        role = raw(world.join("a").await_role("x", LONG_S))

        async def main():
            with pytest.raises(rink.UsageError, match=TRIO):
                await role.lost.wait()

        trio.run(main)
        role.release()


def test_aio_without_any_loop_is_refused_in_words(cluster):
    with pytest.raises(
        rink.UsageError, match="needs asyncio, and no event loop of asyncio runs here"
    ):
        by_hand(aio.Rink(aio.Session(cluster.client()), "g").join())


def test_aio_under_a_loop_that_sniffio_names_is_refused(cluster, monkeypatch):
    other = SimpleNamespace(
        current_async_library=lambda: "curio", AsyncLibraryNotFoundError=RuntimeError
    )
    monkeypatch.setitem(sys.modules, "sniffio", other)
    with pytest.raises(rink.UsageError, match="curio runs here"):
        by_hand(aio.Rink(aio.Session(cluster.client()), "g").join())


def test_aio_under_asyncio_needs_no_sniffio(cluster, monkeypatch):
    monkeypatch.delitem(sys.modules, "sniffio", raising=False)

    async def main():
        async with aio.Session(cluster.client()) as session, aio.Rink(session, "g") as member:
            assert member.name

    asyncio.run(main())


def test_blocking_call_under_trio_warns_once_and_says_what_to_write(cluster, monkeypatch):
    """The loop is blocked as under asyncio, and the lease is still renewed."""
    monkeypatch.setattr(callers_module._LoopWarning, "once", False)

    async def main():
        with rink.Session(cluster.client()) as session, rink.Rink(session, "g") as member:
            assert member.name

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trio.run(main)
    texts = [str(one.message) for one in caught if one.category is RuntimeWarning]
    assert len(texts) == 1
    assert texts[0].startswith("Rink.join() blocks the running trio loop")
    assert "trio.to_thread.run_sync" in texts[0]


def test_blocking_call_in_a_thread_of_trio_warns_of_nothing(cluster, monkeypatch):
    monkeypatch.setattr(callers_module._LoopWarning, "once", False)

    def member():
        with rink.Session(cluster.client()) as session, rink.Rink(session, "g") as member:
            return member.name

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert trio.run(trio.to_thread.run_sync, member)

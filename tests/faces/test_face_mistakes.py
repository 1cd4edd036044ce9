"""Check mistakes that passed silently, or raised an unclear error."""

import asyncio
import functools
import gc
import linecache
import re
import warnings

import pytest
from faces_support import LONG_S, QUICK, TTL_S, until

import rink
from rink import aio
from rink.testing.memory.cluster import MemoryCluster


async def work(*_):
    """Do what a callback of users does."""


class Works:
    async def __call__(self, *_): ...


def endless(*_):
    yield


FACES = {"blocking": rink, "aio": aio}
NOT_PLAIN = {
    "async": work,
    "partial": functools.partial(work),
    "object": Works(),
    "partial_of_object": functools.partial(Works()),
    "method": Works().__call__,
}
LISTENERS = ["on_coordinator_change", "on_rank_change", "on_role_change"]


@pytest.fixture
def session():
    """Give a session of each face; neither has connected anywhere."""
    with MemoryCluster() as cluster:
        made = {name: face.Session(cluster.client(), ttl=5) for name, face in FACES.items()}
        yield made
        made["blocking"].close()
        asyncio.run(made["aio"].close())


def on_aio(scenario):
    """Run a scenario as a ranked member of the asyncio face."""

    async def whole(cluster):
        async with (
            aio.Session(cluster.client(), ttl=TTL_S) as session,
            aio.Rink(session, "g", name="a", **QUICK) as r,
        ):
            await scenario(r)

    with MemoryCluster() as cluster:
        asyncio.run(asyncio.wait_for(whole(cluster), LONG_S))


# ── functions ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("listener", LISTENERS)
def test_rink_async_callback_raises(session, face, listener):
    for function in NOT_PLAIN.values():
        with pytest.raises(rink.ConfigError, match=rf"{listener}.* is async.*plain function"):
            FACES[face].Rink(session[face], "g", **{listener: function})


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("listener", LISTENERS)
def test_rink_callback_that_cannot_be_called_raises(session, face, listener):
    for function, message in [
        ("work", "is not callable"),
        (endless, "is a generator"),
        (lambda: None, "too many positional arguments"),
    ]:
        with pytest.raises(rink.ConfigError, match=rf"{listener}.*{message}"):
            FACES[face].Rink(session[face], "g", **{listener: function})


def test_rink_plain_callbacks_on_both_faces_are_taken(session):
    for name, face in FACES.items():
        face.Rink(session[name], "g", on_rank_change=print, on_role_change=lambda *_: None)


@pytest.mark.parametrize("kind", NOT_PLAIN)
def test_blocking_on_role_async_function_raises(session, kind):
    r = rink.Rink(session["blocking"], "g")
    with pytest.raises(rink.ConfigError, match=r"on_role\('leader'\).* is async.*rink\.aio"):
        r.on_role("leader")(NOT_PLAIN[kind])


def test_blocking_on_role_wrapper_of_async_function_logs_error(blocking, caplog):
    """The wrapper is a plain function, so only its call shows what it returns."""
    a = blocking.join()

    def wrapper(role):
        return work(role)

    a.on_role("leader")(wrapper)
    until(a, lambda: "which nobody runs" in caplog.text)


@pytest.mark.parametrize("face", FACES)
def test_on_role_function_that_cannot_be_called_raises(session, face):
    r = FACES[face].Rink(session[face], "g")
    for function, message in (("work", "is not callable"), (endless, "is a generator")):
        with pytest.raises(rink.ConfigError, match=rf"on_role\('leader'\).*{message}"):
            r.on_role("leader")(function)


def test_aio_on_role_plain_function_raises(session):
    """The call would block the event loop while the role is held."""
    r = aio.Rink(session["aio"], "g")
    with pytest.raises(rink.ConfigError, match=r"on_role\('leader'\).*async def"):
        r.on_role("leader")(print)
    r.on_role("leader")(functools.partial(Works()))


# ── a session of the other face ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("face", "other"), [("blocking", "aio"), ("aio", "blocking")])
def test_rink_session_of_other_face_raises(session, face, other):
    name = FACES[face].__name__
    with pytest.raises(rink.UsageError, match=rf"group 'g'.*{re.escape(name)}\.Session.*not <"):
        FACES[face].Rink(session[other], "g")


def test_rink_without_a_session_raises():
    with pytest.raises(rink.UsageError, match=r"rink\.Session first, not 'http://a:2379'"):
        rink.Rink("http://a:2379", "g")


# ── `with` and `async with`, `for` and `async for` ───────────────────────────────────────────


def test_aio_classes_in_plain_with_raise():
    async def scenario(r):
        role = await r.await_role("x", LONG_S)
        for made in (r._session, r, role, r.roles(["x"])):
            with pytest.raises(rink.UsageError, match="write `async with`, not `with`"), made:
                pass
        role.release()

    on_aio(scenario)


def test_aio_role_set_in_plain_for_raises():
    async def scenario(r):
        async with r.roles(["x"]) as mine:
            with pytest.raises(rink.UsageError, match="write `async for`, not `for`"):
                list(mine)

    on_aio(scenario)


async def enter(made):
    async with made:
        pass


async def iterate(made):
    async for _ in made:
        pass


def test_blocking_classes_in_async_with_raise(blocking):
    a = blocking.join()
    with a.await_role("x", LONG_S) as role:
        for made in (a._session, a, role, a.roles(["x"])):
            with pytest.raises(rink.UsageError, match="write `with`, not `async with`"):
                asyncio.run(enter(made))
    assert a._session.is_live


def test_blocking_role_set_in_async_for_raises(blocking):
    refused = pytest.raises(rink.UsageError, match="write `for`, not `async for`")
    with blocking.join().roles(["x"]) as mine, refused:
        asyncio.run(iterate(mine))


# ── await_role() that is not awaited ─────────────────────────────────────────────────────────

OF_A_ROLE = sorted(name for name in dir(aio.Role) if not name.startswith("_"))


def test_aio_await_role_used_as_a_role_raises():
    async def scenario(r):
        assert {"token", "lost", "is_held", "release"} <= set(OF_A_ROLE)
        for name in OF_A_ROLE:
            with pytest.raises(rink.UsageError, match=rf"'x'.*`\.{name}`.*await"):
                getattr(r.await_role("x"), name)
        with pytest.raises(AttributeError, match="nonsense"):
            _ = (waiting := r.await_role("x")).nonsense
        (await waiting).release()

    on_aio(scenario)


def test_aio_await_role_as_a_truth_value_raises():
    async def scenario(r):
        with pytest.raises(rink.UsageError, match=r"'x'.*no truth value.*await"):
            assert r.await_role("x")

    on_aio(scenario)


def test_aio_await_role_in_plain_with_raises():
    async def scenario(r):
        refused = pytest.raises(rink.UsageError, match=r"'x'.*`async with r\.await_role\('x'\)")
        with refused, r.await_role("x"):
            pass

    on_aio(scenario)


def test_aio_await_role_never_awaited_warns_at_its_line():
    async def scenario(r):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            r.await_role("x")
            gc.collect()
        (warning,) = caught
        assert warning.category is RuntimeWarning
        assert "role 'x': await_role() was never awaited" in str(warning.message)
        assert warning.filename == __file__
        assert "r.await_role" in linecache.getline(__file__, warning.lineno)

    on_aio(scenario)


def test_aio_await_role_awaited_or_entered_does_not_warn():
    async def scenario(r):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            (await r.await_role("x", LONG_S)).release()
            async with r.await_role("x", LONG_S):
                pass
            _, y = await asyncio.gather(enter(r.await_role("x")), r.await_role("y"))
            y.release()
            gc.collect()
        assert [str(one.message) for one in caught if one.category is RuntimeWarning] == []

    on_aio(scenario)

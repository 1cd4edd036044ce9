"""Test each limit of the API, at the limit and one above it."""

import contextlib
import json

import pytest
from sidecar_apart import Sidecar, run

from rink.sidecar import access, bodies, http_api, listeners


def test_limits_are_those_that_are_documented():
    assert access.MAX_HEAD_BYTES == 16 * 1024
    assert listeners.HEAD_TIMEOUT_S == bodies.BODY_TIMEOUT_S == listeners.SEND_TIMEOUT_S == 5
    assert bodies.MAX_BODY_BYTES == 64 * 1024
    assert http_api.MAX_STREAMS == 256
    assert bodies.MAX_ROLES == 1_000
    assert http_api.MAX_ALL_ROLES == 10_000
    assert bodies.MAX_NAME_BYTES == 512
    assert http_api.MAX_CALLS == 128
    assert bodies.MAX_NUMBER == 2**53


async def hold(**body):
    """Return the status of a hold by a new sidecar."""
    return (await Sidecar().post("/v1/hold", body)).status_code


@run
async def test_body_may_have_64_kib():
    headers = {"content-type": "application/json"}
    body = json.dumps({"roles": ["a"]}).encode()
    for size, status in ((65_536, 200), (65_537, 413)):
        content = body + b" " * (size - len(body))
        answer = await Sidecar().client.post("/v1/hold", content=content, headers=headers)
        assert answer.status_code == status


@run
async def test_name_of_a_consumer_may_have_64_characters():
    assert await hold(roles=["a"], consumer="x" * 64) == 200
    assert await hold(roles=["a"], consumer="x" * 65) == 400


@pytest.mark.parametrize("name", ["x" * 512, "é" * 256, "\U0001f980" * 128])
@run
async def test_name_of_a_role_may_have_512_bytes(name):
    assert await hold(roles=[name]) == 200
    assert await hold(roles=[name + "x"]) == 400


@pytest.mark.parametrize("char", ["\x00", "\x1f", "\x7f", "\x9f"])
@run
async def test_name_of_a_role_has_no_control_character(char):
    assert await hold(roles=[f"a{char}b"]) == 400


@run
async def test_consumer_may_have_1000_roles():
    assert await hold(roles=[f"r{number}" for number in range(1_000)]) == 200
    assert await hold(roles=[f"r{number}" for number in range(1_001)]) == 400


@run
async def test_all_consumers_may_have_10000_roles():
    sidecar = Sidecar()
    async with contextlib.AsyncExitStack() as streams:
        for number in range(10):
            roles = [f"r{number}-{i}" for i in range(1_000 if number else 999)]
            stream = await streams.enter_async_context(sidecar.stream(roles=roles))
            await stream.event()
        assert (await sidecar.post("/v1/hold", {"roles": ["one", "two"]})).status_code == 429
        last = await streams.enter_async_context(sidecar.stream(roles=["one"]))
        await last.event()
        assert last.status == 200
        assert (await sidecar.post("/v1/hold", {"roles": ["two"]})).status_code == 429


@run
async def test_sidecar_may_have_256_streams():
    sidecar = Sidecar(max_streams=http_api.MAX_STREAMS)
    async with contextlib.AsyncExitStack() as streams:
        for _ in range(256):
            stream = await streams.enter_async_context(sidecar.stream(roles=["a"]))
            await stream.event()
            assert stream.status == 200
        async with sidecar.stream(roles=["a"]) as one_more:
            await one_more._task
            assert one_more._sent.get_nowait()["status"] == 429

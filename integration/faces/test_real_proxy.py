"""Members behind etcd's own grpc-proxy, whose answers carry a cluster id only at times."""

import asyncio
import logging
import socket
import subprocess
import time

import pytest

import rink
import rink.aio
from rink.testing.servers_start import find_etcd

pytestmark = pytest.mark.waits


@pytest.fixture
def proxy(etcd_url):
    """Return the endpoint of a proxy before the shared etcd."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    command = [
        find_etcd(),
        "grpc-proxy",
        "start",
        "--endpoints",
        etcd_url,
        "--listen-addr",
        address,
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            socket.create_connection(address.split(":"), 1.0).close()
            break
        except OSError:
            time.sleep(0.05)
    yield f"http://{address}"
    process.kill()
    process.wait()


def test_second_member_behind_grpc_proxy_is_refused_in_words(proxy, prefix, caplog):
    """The proxy lets a second watch of one range share the first one's, and drops the cluster id.

    It was taken for another cluster: 20 sessions a second ended.
    """

    async def on_asyncio():
        async with rink.aio.Session(proxy, prefix=prefix) as session:
            await rink.aio.Rink(session, "g").join()

    words = f"answers of {proxy} carry no cluster id"
    with (
        caplog.at_level(logging.INFO, "rink"),
        rink.Session(proxy, prefix=prefix) as session,
        rink.Rink(session, "g", name="first", initial_delay=0) as first,
        first.await_role("x", timeout=20) as role,
    ):
        with rink.Session(proxy, prefix=prefix) as other:
            with pytest.raises(rink.EtcdError, match=words):
                rink.Rink(other, "g").join()
            with pytest.raises(rink.EtcdError, match=words):
                asyncio.run(on_asyncio())
        assert role.is_held
        assert [member.name for member in first.members] == ["first"]
    assert "session ends" not in caplog.text

"""Test members behind etcd's own grpc-proxy.

Its answers carry a cluster id only at times.
"""

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import sys
import time

import pytest

import rink
import rink.aio
from rink.testing.etcd_server.start import find_etcd
from rink.testing.process.ports import free_ports

pytestmark = pytest.mark.waits


@pytest.fixture
def start_proxy(etcd_url):
    """Start proxies before the shared etcd; each gives its endpoint."""
    with contextlib.ExitStack() as stack:

        def start(*arguments):
            address = f"127.0.0.1:{free_ports(1)[0]}"
            command = [find_etcd(), "grpc-proxy", "start", "--endpoints", etcd_url]
            command += ["--listen-addr", address, *arguments]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            process = stack.enter_context(subprocess.Popen(command, **quiet))
            stack.callback(process.kill)
            end = time.monotonic() + 20
            while True:
                with contextlib.suppress(OSError):
                    socket.create_connection(address.split(":"), 1.0).close()
                    break
                assert time.monotonic() < end, f"no proxy listens at {address}"
                time.sleep(0.05)
            return f"http://{address}"

        yield start


def test_join_behind_grpc_proxy_is_refused_in_words(start_proxy, prefix):
    proxy = start_proxy()
    words = f"answers of {proxy} carry no cluster id"

    async def on_asyncio():
        async with rink.aio.Session(proxy, prefix=prefix) as session:
            await rink.aio.Rink(session, "g").join()

    with pytest.raises(rink.EtcdError, match=words):
        asyncio.run(on_asyncio())
    session = rink.Session(proxy, prefix=prefix)
    with contextlib.closing(session), pytest.raises(rink.EtcdError, match=words):
        rink.Rink(session, "g").join()


def test_session_behind_proxy_that_hides_itself_is_not_ended(start_proxy, prefix, caplog):
    """A session behind a proxy that advertises no address is not ended.

    The proxy asks the servers for the list of members. Then its answers to a watch that joins
    another's stream are refused. They were taken for another cluster's: 20 sessions a second ended.
    """
    proxy = start_proxy("--advertise-client-url", "")
    with (
        caplog.at_level(logging.INFO, "rink"),
        rink.Session(proxy, prefix=prefix) as one,
        rink.Session(proxy, prefix=prefix) as two,
        rink.Rink(one, "g", name="first") as first,
    ):
        incarnation = first.members[0].incarnation
        with contextlib.suppress(rink.EtcdError):
            rink.Rink(two, "g", name="second").join()
        time.sleep(2.0)
        assert first.members[0].incarnation == incarnation
    assert "the session ends" not in caplog.text.lower()


def test_command_that_follows_behind_grpc_proxy_is_refused_in_words(start_proxy, etcd_url, prefix):
    proxy = start_proxy()
    watch = [sys.executable, "-m", "rink.cli", "watch", "g", "--prefix", prefix, "--json"]
    env = {**os.environ, "RINK_ETCD": proxy}
    with rink.Session(etcd_url, prefix=prefix) as session, rink.Rink(session, "g"):
        done = subprocess.run(
            watch, env=env, capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode != 0
    assert f"answers of {proxy} carry no cluster id" in done.stderr

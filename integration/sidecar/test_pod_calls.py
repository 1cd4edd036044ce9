"""Calls of the API server, at the level of TCP connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading

import pytest
from pems import Files
from sidecar_support import wait_for

from rink.sidecar import pod_api
from rink.sidecar.pod_api import Pod, PodApi, PodApiError

TCP_CLOSE = 7
"""The state of a connection that the other side has reset. After a mere close it is CLOSE_WAIT."""


@pytest.fixture
def silent(tmp_path, monkeypatch):
    """Yield the pod of a server that reads one request, and its connections."""
    files = Files(tmp_path / "pems", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert, files.key)
    account = tmp_path / "account"
    account.mkdir()
    (account / "token").write_text("token-1")
    (account / "ca.crt").write_bytes(files.ca.read_bytes())
    listener = socket.create_server(("127.0.0.1", 0))
    asked = []
    monkeypatch.setattr(pod_api, "CONNECT_TIMEOUT_S", 30.0)  # the server is a thread, and may stall

    def serve():
        with contextlib.suppress(OSError):
            connection = context.wrap_socket(listener.accept()[0], server_side=True)
            connection.recv(4096)
            asked.append(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    yield Pod("127.0.0.1", listener.getsockname()[1], "shop", "web-1", account), asked
    listener.close()
    thread.join()
    for one in asked:
        one.close()


def test_call_that_is_given_up_is_reset(silent):
    """Otherwise a late call could undo a newer one.

    The kernel tries to send it for minutes.
    """
    pod, asked = silent

    async def give_up():
        call = asyncio.create_task(PodApi(pod, frozenset({"leader"})).label(frozenset()))
        await asyncio.to_thread(wait_for, lambda: asked)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    asyncio.run(give_up())
    (connection,) = asked
    wait_for(lambda: connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == TCP_CLOSE)


def test_answer_that_is_no_http_is_shown_as_a_json_string(silent):
    """The line is logged, and could hold control codes of a terminal."""
    pod, asked = silent

    async def call():
        calling = asyncio.create_task(PodApi(pod, frozenset({"leader"})).label(frozenset()))
        await asyncio.to_thread(wait_for, lambda: asked)
        asked[0].sendall(b"\x1b[2J" + 1000 * b"x" + b"\r\n")
        await calling

    with pytest.raises(PodApiError, match=r'^"\\u001b\[2Jx+"$') as caught:
        asyncio.run(call())
    assert len(str(caught.value)) < 400

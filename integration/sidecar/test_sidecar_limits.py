"""Test limits of a sidecar's listeners, by raw connections.

The process is real, and reaches no etcd.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import statistics
import time
from email.utils import parsedate_to_datetime

import pytest
from sidecar_support import Sidecar, wait_for

from rink.sidecar.http_api import MAX_CALLS, MAX_STREAMS
from rink.sidecar.listeners import MAX_CALLERS

NO_ETCD = "http://127.0.0.1:1"
TIMEOUT_S = 5.0
SLACK_S = 10.0
"""Seconds by which a busy machine may be late."""
MANY = 700
"""More connections than a listener has."""
PROBE_S = 0.05
"""Most seconds of a probe on a quiet machine."""
TRIES = 5
"""Tries: a slow sidecar misses the limit in each, a busy machine only in some.

They are a second apart, since other tests may load the machine for some seconds.
"""

pytestmark = [pytest.mark.waits, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory):
    folder = tmp_path_factory.mktemp("limits")
    one = Sidecar(
        folder, "limits", NO_ETCD, "p/", ("--public", "127.0.0.1:0", "--max-streams", "4")
    )
    yield one.start()
    assert one.process.poll() is None, one.said()
    assert "Traceback" not in one.said(), one.said()
    one.kill()


@pytest.fixture(scope="module")
def public(sidecar):
    return wait_for(lambda: re.search(r"probes are at http://(\S+)", sidecar.said()))[1]


def connect(address):
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), 30)


def head(address, line="POST /v1/hold", more="", kind="application/json"):
    """Return the head of a request."""
    content = f"Content-Type: {kind}\r\n" if kind else ""
    return f"{line} HTTP/1.1\r\nHost: {address}\r\n{content}{more}\r\n".encode()


def read_all(connection):
    """Return the bytes until the other side ends."""
    read = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := connection.recv(65_536):
            read += chunk
    return read


def ask(address, *parts):
    """Send parts on a new connection; return the status and the answer."""
    with connect(address) as connection:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for part in parts:
                connection.sendall(part)
        answer = read_all(connection).decode("latin-1")
        return int(answer.split(" ", 2)[1]) if answer else None, answer


def is_closed(connection, part=b"", every=0.3):
    """Send a part repeatedly; return whether the connection closes in time."""
    began = time.monotonic()
    connection.settimeout(every)
    while time.monotonic() - began < TIMEOUT_S + SLACK_S:
        try:
            if not connection.recv(65_536):
                return True
        except TimeoutError:
            with contextlib.suppress(OSError):
                connection.sendall(part)
        except ConnectionResetError:
            return True
    return False


# ── heads and bodies ─────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_split", [False, True])
def test_head_above_16_kib_is_refused(sidecar, is_split):
    whole = head(sidecar.api, "GET /v1/status", f"X: {'x' * 17_000}\r\nConnection: close\r\n")
    status, answer = ask(sidecar.api, *([whole[:16_500], whole[16_500:]] if is_split else [whole]))
    assert status in (400, 431, None), answer
    fits = head(sidecar.api, "GET /v1/status", f"X: {'x' * 15_000}\r\nConnection: close\r\n")
    assert ask(sidecar.api, fits)[0] == 200


@pytest.mark.parametrize("part", [b"", b"X"])
def test_head_that_is_not_complete_in_time_is_closed(sidecar, public, part):
    began = time.monotonic()
    with connect(sidecar.api) as one, connect(public) as other:
        for connection in (one, other):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
        assert is_closed(one, part)
        assert time.monotonic() - began > TIMEOUT_S - 1
        assert is_closed(other, part)


def test_body_that_nobody_reads_keeps_no_connection(public):
    with connect(public) as connection:
        connection.sendall(head(public, "GET /startz", "Content-Length: 100000\r\n"))
        assert b"200 OK" in connection.recv(4096)
        assert is_closed(connection, b"x")


def test_answers_that_nobody_reads_keep_no_connection(public):
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, _, port = public.rpartition(":")
        connection.connect((host, int(port)))
        connection.setblocking(False)
        with pytest.raises(OSError, match=r"reset|Broken pipe"):
            keep_asking(connection, head(public, "GET /metrics"))


def keep_asking(connection, request):
    """Send requests until the other side takes no more, and read nothing."""
    began = time.monotonic()
    while time.monotonic() - began < 4 * (TIMEOUT_S + SLACK_S):
        try:
            connection.send(request * 50)
        except BlockingIOError:
            time.sleep(0.05)


def test_body_above_64_kib_is_refused(sidecar):
    body = json.dumps({"roles": ["a" * 70_000]}).encode()
    sized = head(sidecar.api, more=f"Content-Length: {len(body)}\r\nConnection: close\r\n")
    assert ask(sidecar.api, sized, body)[0] == 413
    chunked = head(sidecar.api, more="Transfer-Encoding: chunked\r\nConnection: close\r\n")
    chunk = b"%x\r\n%s\r\n" % (len(body), body)
    assert ask(sidecar.api, chunked, chunk, b"0\r\n\r\n")[0] == 413


def test_body_that_comes_too_slowly_is_refused(sidecar):
    with connect(sidecar.api) as connection:
        connection.sendall(head(sidecar.api, more="Content-Length: 1000\r\n"))
        answer = connection.recv(4096)
        assert b" 408 " in answer.partition(b"\r\n")[0]
        assert is_closed(connection, b"x")


def test_chunked_body_is_read(sidecar):
    body = b'{"roles": ["chunked"]}'
    more = "Transfer-Encoding: chunked\r\nConnection: close\r\n"
    parts = [b"5\r\n%s\r\n" % body[:5], b"%x\r\n%s\r\n0\r\n\r\n" % (len(body) - 5, body[5:])]
    status, answer = ask(sidecar.api, head(sidecar.api, more=more), *parts)
    assert status == 200
    assert '"held":[]' in answer


# ── requests that are not what they seem ─────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET http://evil.example/v1/status HTTP/1.1\r\nHost: API\r\n\r\n", 404),
        (b"GET //evil.example/v1/status HTTP/1.1\r\nHost: API\r\n\r\n", 404),
        (b"GET /v1/status HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421),
        (b"GET /v1/status HTTP/1.1\r\nHost: API\r\nHost: evil.example\r\n\r\n", 400),
        (b"GET /v1/status HTTP/1.1\r\n\r\n", 400),
        (b"GET /v1/status HTTP/1.0\r\n\r\n", 421),
        (b"OPTIONS * HTTP/1.1\r\nHost: API\r\n\r\n", 404),
        (b"OPTIONS /v1/hold HTTP/1.1\r\nHost: API\r\nOrigin: null\r\n\r\n", 403),
        (b"TRACE /v1/hold HTTP/1.1\r\nHost: API\r\n\r\n", 405),
        (b"HEAD /v1/status HTTP/1.1\r\nHost: API\r\n\r\n", 200),
        (b"GET /v1/hold HTTP/1.1\r\nHost: API\r\n\r\n", 405),
        (b"GET /v1/drain HTTP/1.1\r\nHost: API\r\n\r\n", 405),
        (b"HEAD /v1/drain HTTP/1.1\r\nHost: API\r\n\r\n", 405),
        ((b"POST /v1/renew HTTP/1.1\r\nHost: API\r\nContent-Length: 2\r\n"
         b"Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n0\r\n\r\n"), 400),
        ((b"POST /v1/renew HTTP/1.1\r\nHost: API\r\nContent-Length: 2\r\n"
         b"Content-Length: 3\r\n\r\n{}"), 400),
        (b"POST /v1/renew HTTP/1.1\r\nHost: API\r\nTransfer-Encoding: gzip\r\n\r\n", None),
        ((b"POST /v1/drain HTTP/1.1\r\nHost: API\r\nContent-Length: 0\r\n"
         b"Content-Type: application/x-www-form-urlencoded\r\n\r\n"), 415),
        (b"GET /v1/status HTTP/1.1\r\nHost: API\r\nX : y\r\n\r\n", 400),
        (b"GET /v1/status HTTP/1.1\r\nHost: API\r\nX: a\r\n\tb\r\n\r\n", 200),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 421),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    ],
)  # fmt: skip
def test_odd_request_is_answered_in_words(sidecar, request_, status):
    request_ = request_.replace(b"API", sidecar.api.encode())
    last = request_.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
    with connect(sidecar.api) as connection:
        connection.sendall(last)
        answer = read_all(connection).decode("latin-1")
    got = int(answer.split(" ", 2)[1])
    assert got == status if status else 400 <= got <= 501, answer
    assert "evil" not in answer
    assert "location" not in answer.lower()
    assert sidecar.call("GET", "/v1/status")[1]["draining"] == ""


@pytest.mark.parametrize("path", ["/v1/hold/", "/healthz/"])
def test_path_with_a_slash_is_not_sent_to_another_place(sidecar, public, path):
    for address in (sidecar.api, public):
        status, answer = ask(address, head(address, f"GET {path}", "Connection: close\r\n"))
        assert status == 404, answer
        assert "location" not in answer.lower()


def test_pipelined_requests_are_answered_in_order(sidecar):
    first = head(sidecar.api, "GET /v1/status")
    second = head(sidecar.api, "GET /v1/nothing", "Connection: close\r\n")
    with connect(sidecar.api) as connection:
        connection.sendall(first + second)
        answer = read_all(connection)
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"404"]


def test_client_that_sends_its_end_after_a_request_is_answered(sidecar):
    with connect(sidecar.api) as connection:
        connection.sendall(head(sidecar.api, "GET /v1/status"))
        connection.shutdown(socket.SHUT_WR)
        assert b"200 OK" in read_all(connection)


def test_answers_allow_no_page_to_read_them(sidecar):
    answer = ask(sidecar.api, head(sidecar.api, "GET /v1/status", "Connection: close\r\n"))[1]
    fields = answer.partition("\r\n\r\n")[0].lower()
    assert "access-control" not in fields
    assert "set-cookie" not in fields


# ── numbers of roles, streams and connections ────────────────────────────────────────────────


def stream(sidecar, roles):
    """Open a stream, and return its connection and the status."""
    body = json.dumps({"roles": roles}).encode()
    more = f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\n"
    connection = connect(sidecar.api)
    connection.sendall(head(sidecar.api, more=more) + body)
    return connection, int(connection.recv(65_536).split(b" ", 2)[1])


def test_streams_and_roles_above_their_limits_are_refused(sidecar):
    held = "a held stream"
    with contextlib.ExitStack() as stack:
        for number in range(4):
            connection, held = stream(sidecar, [f"s{number}-{i}" for i in range(1_000)])
            stack.enter_context(connection)
            assert held == 200
        connection, status = stream(sidecar, ["one more"])
        connection.close()
        assert status == 429
        fifth = {"roles": [f"r{i}" for i in range(1_001)]}
        assert sidecar.call("POST", "/v1/hold", fifth)[0] == 400
    wait_for(lambda: sidecar.call("GET", "/v1/status")[1]["consumers"] == [])
    connection, status = stream(sidecar, ["one more"])
    connection.close()
    assert status == 200


def test_stream_that_nobody_reads_is_closed(sidecar):
    """The state of 1,000 roles is more than its connection can buffer."""
    is_given_up = 'consumer "deaf": writes to its stream timed out, so the stream was closed'
    roles = [f"{'x' * 40}-{number}" for number in range(1_000)]
    body = json.dumps({"roles": roles, "consumer": "deaf"}).encode()
    more = f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\n"
    reader, status = stream(sidecar, ["read"])
    with reader, socket.socket() as deaf:
        assert status == 200
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1024)  # of the other side's buffer
        host, _, port = sidecar.api.rpartition(":")
        deaf.connect((host, int(port)))
        began = time.monotonic()
        deaf.sendall(head(sidecar.api, more=more) + body)
        wait_for(lambda: is_given_up in sidecar.said(), sidecar.said)
        assert TIMEOUT_S - 1 < time.monotonic() - began < TIMEOUT_S + SLACK_S
        consumers = sidecar.call("GET", "/v1/status")[1]["consumers"]
        assert [one["waiting"] for one in consumers] == [["read"]], "only the deaf one is gone"


# ── probes ───────────────────────────────────────────────────────────────────────────────────


def test_probes_answer_while_the_api_has_no_connection_left(sidecar, public):
    fill(sidecar.api, public, MANY)
    wait_for(lambda: sidecar.call("GET", "/v1/status")[0] == 200)


def test_probes_answer_while_the_api_has_all_streams_and_holds(public, tmp_path):
    """Each probe is compared with that of an idle sidecar at the same time."""
    full = Sidecar(tmp_path, "full", NO_ETCD, "p/", ("--public", "127.0.0.1:0")).start()
    probes = wait_for(lambda: re.search(r"probes are at http://(\S+)", full.said()))[1]
    body = b'{"roles": ["awaited"], "wait": 3600}'
    hold = head(full.api, more=f"Content-Length: {len(body)}\r\n") + body
    with contextlib.ExitStack() as stack:
        stack.callback(full.kill)
        for number in range(MAX_STREAMS):
            connection, status = stream(full, [f"r-{number}-{i}" for i in range(30)])
            stack.enter_context(connection)
            assert status == 200
        for _ in range(MAX_CALLS):
            stack.enter_context(connect(full.api)).sendall(hold)
        count = MAX_STREAMS + MAX_CALLS
        wait_for(lambda: len(full.call("GET", "/v1/status")[1]["consumers"]) == count)
        p95 = []
        while not p95 or p95[-1][1] >= PROBE_S + p95[-1][0]:
            assert len(p95) < TRIES, p95
            time.sleep(1.0 if p95 else 0.0)
            idle, busy = [], []
            for _ in range(100):
                assert full.call("POST", "/v1/hold", {"roles": ["one more"]})[0] == 429
                idle.append(probe(public))
                busy.append(probe(probes))
            p95.append([sorted(taken)[94] for taken in (idle, busy)])
        assert len(full.call("GET", "/v1/status")[1]["consumers"]) == count


def test_probes_answer_while_their_own_listener_is_full(public):
    fill(public, public, MANY)


def fill(address, public, count):
    """Keep many connections open, and measure the time of probes."""
    medians = []
    while not medians or medians[-1] >= PROBE_S:
        assert len(medians) < TRIES, medians
        time.sleep(1.0 if medians else 0.0)
        with contextlib.ExitStack() as stack:
            for _ in range(count):
                with contextlib.suppress(ConnectionError):
                    connection = stack.enter_context(connect(address))
                    connection.sendall(b"GET /healthz HTTP/1.1\r\nX-Slow: ")
            medians.append(statistics.median(probe(public) for _ in range(21)))


def probe(public):
    """Return the seconds that a probe takes."""
    began = time.monotonic()
    assert ask(public, head(public, "GET /healthz", "Connection: close\r\n"))[0] == 200
    return time.monotonic() - began


def test_holds_that_wait_keep_no_renewal_out(sidecar):
    body = b'{"roles": ["awaited"], "wait": 60}'
    request = head(sidecar.api, more=f"Content-Length: {len(body)}\r\n") + body
    with contextlib.ExitStack() as stack:
        for _ in range(MAX_CALLS):
            stack.enter_context(connect(sidecar.api)).sendall(request)
        wait_for(lambda: len(sidecar.call("GET", "/v1/status")[1]["consumers"]) == MAX_CALLS)
        for number in range(4):
            connection, status = stream(sidecar, [f"stream-{number}"])
            stack.enter_context(connection)
            assert status == 200
        assert sidecar.call("POST", "/v1/renew", {"grant": "nothing"})[0] == 410
        assert sidecar.call("POST", "/v1/hold", {"roles": ["one more"]})[0] == 429
    wait_for(lambda: sidecar.call("GET", "/v1/status")[1]["consumers"] == [])


def test_halves_of_bodies_keep_no_renewal_out(sidecar):
    half = head(sidecar.api, more="Content-Length: 1000\r\n") + b'{"roles": ['
    with contextlib.ExitStack() as stack:
        for _ in range(MANY):
            with contextlib.suppress(ConnectionError):
                stack.enter_context(connect(sidecar.api)).sendall(half)
        for _ in range(5):
            assert sidecar.call("POST", "/v1/renew", {"grant": "nothing"})[0] == 410


def test_burst_of_streams_up_to_their_limit_is_served(tmp_path):
    count = MAX_CALLERS + 50
    one = Sidecar(tmp_path, "burst", NO_ETCD, "p/", ("--max-streams", str(count))).start()
    with contextlib.ExitStack() as stack:
        stack.callback(one.kill)
        connections = []
        for number in range(count):
            body = b'{"roles": ["r-%d"]}' % number
            more = f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\n"
            connections.append(stack.enter_context(connect(one.api)))
            connections[-1].sendall(head(one.api, more=more) + body)
        for connection in connections:
            assert b" 200 " in connection.recv(65_536)


def test_page_is_not_there_by_default(public):
    assert ask(public, head(public, "GET /", "Connection: close\r\n"))[0] == 404


def test_date_of_an_answer_is_right(sidecar):
    def sent_at():
        with connect(sidecar.api) as connection:
            connection.sendall(head(sidecar.api, "GET /v1/status", "Connection: close\r\n", ""))
            date = re.search(rb"\r\ndate: (.*)\r\n", read_all(connection))[1].decode()
        return parsedate_to_datetime(date).timestamp()

    first = sent_at()
    assert abs(time.time() - first) < SLACK_S
    wait_for(lambda: sent_at() > first, "the date stands still")

"""Test the messages of troubles, signals in each state, and old sockets."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import threading
import time

import pytest
from sidecar_support import DEADLINE_S, FAST, LONG_HOLD, RINK, Sidecar, wait_for

from rink.sidecar.service import LEAVES
from rink.testing import local_etcd

NO_ETCD = "http://127.0.0.1:1"
TOKEN = "0123456789abcdef0123456789abcdef"

pytestmark = [pytest.mark.waits, pytest.mark.timeout(180)]


@pytest.fixture
def lonely(tmp_path):
    """Start sidecars that reach no etcd, and kill all at the end."""
    made = []

    def lonely(*options, listen="127.0.0.1:0", name="lonely"):
        made.append(Sidecar(tmp_path, name, NO_ETCD, "p/", options, listen=listen))
        return made[-1].start()

    yield lonely
    for one in made:
        one.kill()


def refused(*options, status=1):
    """Return why a sidecar does not start."""
    line = [*RINK, "sidecar", "--group", "orders", "--public", "", *options]
    env = {**os.environ, "RINK_ETCD": NO_ETCD}
    ran = subprocess.run(
        line, env=env, capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )
    assert ran.returncode == status, ran.stderr
    assert "Traceback" not in ran.stderr
    return ran.stderr


def by_socket(path, request):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)  # as `nc -N`
        answer = b""
        while chunk := connection.recv(65_536):
            answer += chunk
        return answer.decode()


# ── the start ────────────────────────────────────────────────────────────────────────────────


def test_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert f"cannot listen on {address}: Address already in use" in refused("--listen", address)
        said = refused("--listen", "127.0.0.1:0", "--public", address)
        assert f"cannot listen on {address}: Address already in use" in said


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--listen", f"unix:/tmp/{'x' * 120}/api"), "too long"),
        (("--listen", "unix:/tmp/api.sock"), "has mode"),
        (("--listen", "127.0.0.1:0", "--bearer", "/no/such/file"), "No such file"),
        (("--listen", "127.0.0.1:0", "--files", "/usr"), "use a tmpfs"),
        (("--listen", "127.0.0.1:0", "--files", "/no/such/folder"), "No such file"),
        (("--listen", "127.0.0.1:0", "--files", "/proc"), "use a tmpfs"),
    ],
)
def test_start_that_cannot_be_is_refused_in_words(options, says):
    assert says in refused(*options)


def test_start_with_wrong_usage_exits_with_2_in_words():
    for options, says in [
        (("--name", ""), "member name is empty"),
        (("--role", "a"), "--role needs --grace"),
        (("--listen", "127.0.0.1:99999"), "give HOST:PORT, or unix:PATH"),
    ]:
        assert says in refused(*options, status=2)


def test_etcd_that_is_away_is_said_once_and_obeys_signals(lonely):
    sidecar = lonely("--role", "leader", "--grace", "1")
    wait_for(lambda: sidecar.call("GET", "/v1/status")[1]["trouble"])
    status = sidecar.call("GET", "/v1/status")[1]
    assert status["state"] == "joining"
    assert NO_ETCD in status["trouble"]
    why = sidecar.call("GET", "/v1/role?name=leader")[1]["why"]
    assert NO_ETCD in why
    assert sidecar.said().count("cannot join") == 1
    sidecar.process.send_signal(signal.SIGTERM)
    assert sidecar.process.wait(DEADLINE_S) == 0, sidecar.said()


def test_password_that_is_wrong_is_named(tmp_path):
    with local_etcd(fsync=False, root_password="right") as node:
        options = (*FAST, "--user", "root", "--role", "a", "--grace", "1")
        sidecar = Sidecar(tmp_path, "wrong", node.endpoint, "p/", options)
        sidecar._env["RINK_ETCD_PASSWORD"] = "the wrong one"
        try:
            sidecar.start()

            def trouble():
                return sidecar.call("GET", "/v1/status")[1]["trouble"]

            # The first try may have been late, which is another trouble.
            wait_for(lambda: re.search("password|authentication", trouble()), trouble)
            assert "the wrong one" not in sidecar.said()
        finally:
            sidecar.kill()


def test_name_that_is_taken_is_named_and_waited_for(sidecar):
    first = sidecar("first", (*FAST, "--name", "pod-1"))
    assert first.call("POST", "/v1/hold", {"roles": ["a"], "wait": 30, "alive": 60})[1]["held"]
    second = sidecar("second", (*FAST, "--name", "pod-1", "--role", "b", "--grace", "1"))
    wait_for(lambda: "still has its name" in second.said())
    wait_for(lambda: "pod-1" in second.call("GET", "/v1/status")[1]["trouble"], second.said)
    first.kill()
    wait_for(lambda: second.call("GET", "/v1/role?name=b")[1]["held"], second.said)


# ── requests ─────────────────────────────────────────────────────────────────────────────────


def test_requests_that_are_refused_say_why(lonely):
    sidecar = lonely()
    for path, body, status, says in [
        ("/v1/renew", {"grant": "nothing"}, 410, "hold the roles anew"),
        ("/v1/release", {"grant": "pod", "role": "a"}, 410, "hold the roles anew"),
        ("/v1/renew", {"grants": "nothing"}, 400, 'unknown field "grants"'),
        ("/v1/hold", [], 400, "JSON object"),
        ("/v1/nothing", {}, 404, "/openapi.json"),
    ]:
        got, answer = sidecar.call("POST", path, body)
        assert (got, says in answer["error"]) == (status, True), answer
    assert sidecar.call("GET", "/v1/role?name=")[0] == 400
    assert sidecar.call("GET", "/v1/members")[0] == 409


def test_token_that_is_wrong_is_refused(lonely, tmp_path):
    token = tmp_path / "token"
    token.write_text(TOKEN)
    sidecar = lonely("--bearer", str(token))
    assert "Authorization: Bearer" in sidecar.call("GET", "/v1/status")[1]["error"]
    line = [*RINK, "drain", "--api", sidecar.api]
    ran = subprocess.run(line, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert ran.returncode != 0
    assert "401" in ran.stderr
    assert TOKEN not in sidecar.said()
    subprocess.run([*line, "--bearer", str(token)], check=True, timeout=DEADLINE_S)


def test_group_is_shown_as_the_command_line_shows_it(sidecar, etcd_url, prefix):
    one = sidecar("one")
    assert one.call("POST", "/v1/hold", {"roles": ["a"], "wait": 30, "alive": 60})[1]["held"]

    def by_rink(command):
        line = [*RINK, command, "orders", "--json", "--endpoints", etcd_url, "--prefix", prefix]
        return without_revision(json.loads(subprocess.check_output(line, timeout=DEADLINE_S)))

    def by_sidecar(call):
        status, fields = one.call("GET", f"/v1/{call}")
        assert status == 200
        return fields if call == "status" else without_revision(fields)

    def without_revision(fields):
        # Writes of other groups raise etcd's revision; a member's view hears of them later.
        assert fields.pop("revision") > 0
        return fields

    asks_etcd = {"leases", "leases_problem", "draining_since"}
    looked = {}

    def looks():
        """Return both outputs, once the member has seen all of etcd."""
        seen, shown = by_rink("status"), without_revision(by_sidecar("status")["group"])
        same = seen.keys() - asks_etcd - {"not_ranked"}
        looked.clear()
        looked.update({name: (shown[name], seen[name]) for name in same})
        is_same = all(mine == theirs for mine, theirs in looked.values())
        return (seen, shown) if seen["settled"] and is_same else None

    seen, shown = wait_for(looks, lambda: f"shown, and seen in etcd: {looked}")
    assert seen.keys() - shown.keys() == asks_etcd
    assert shown["not_ranked"] == "", "of this member alone, so in words"
    members = by_sidecar("members")
    assert members == {name: seen[name] for name in members}
    assert len(members["members"]) == 1
    assert by_sidecar("history") == by_rink("history")
    assert by_sidecar("history")["versions"]


# ── unix sockets ─────────────────────────────────────────────────────────────────────────────


def test_unix_socket_needs_no_host_and_outlives_a_kill(lonely, tmp_path):
    path = tmp_path / "own" / "api"
    first = lonely(listen=f"unix:{path}")
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    answer = by_socket(path, b"GET /v1/status HTTP/1.0\r\n\r\n")
    assert json.loads(answer.partition("\r\n\r\n")[2])["state"] == "absent"
    assert "another process answers" in refused("--listen", f"unix:{path}")
    first.kill()
    assert path.exists()
    second = lonely(listen=f"unix:{path}", name="second")
    assert "200 OK" in by_socket(path, b"GET /v1/status HTTP/1.0\r\n\r\n")
    second.process.terminate()
    assert second.process.wait(DEADLINE_S) == 0
    assert not path.exists()
    third = lonely(listen=f"unix:{path}", name="third")
    path.unlink()
    with socket.socket(socket.AF_UNIX) as later:
        later.bind(str(path))  # as a later sidecar does
        third.process.terminate()
        assert third.process.wait(DEADLINE_S) == 0
        assert path.exists()
    path.unlink()
    path.write_text("a file of somebody")
    assert "Address already in use" in refused("--listen", f"unix:{path}")


# ── signals ──────────────────────────────────────────────────────────────────────────────────


def test_signal_without_a_consumer_ends_it(lonely):
    sidecar = lonely()
    sidecar.process.terminate()
    assert sidecar.process.wait(DEADLINE_S) == 0


def test_signal_ends_a_hold_that_waits(lonely):
    sidecar = lonely()
    answers = []

    def hold():
        body = {"roles": ["a"], "wait": 60, "alive": 60}
        answers.append(sidecar.call("POST", "/v1/hold", body))

    holding = threading.Thread(target=hold)
    holding.start()
    wait_for(lambda: sidecar.call("GET", "/v1/status")[1]["consumers"])
    sidecar.process.terminate()
    assert sidecar.process.wait(DEADLINE_S) == 0
    holding.join(DEADLINE_S)
    ((status, answer),) = answers
    assert (status, answer) == (503, {"error": LEAVES})
    assert "Traceback" not in sidecar.said()
    assert "not heard of in time" not in sidecar.said()


def test_signal_after_a_drain_is_the_first(sidecar):
    one = sidecar("one", LONG_HOLD)
    answer = one.call("POST", "/v1/hold", {"roles": ["a"], "wait": 30, "alive": 60})[1]
    one.drain()
    one.process.terminate()
    lost = wait_for(lambda: one.call("POST", "/v1/renew", {"grant": answer["grant"]})[1]["held"])
    assert one.process.poll() is None
    body = {"grant": answer["grant"], "role": "a", "token": lost[0]["token"]}
    assert one.call("POST", "/v1/release", body)[0] == 204
    assert one.process.wait(DEADLINE_S) == 0, one.said()


def test_two_signals_at_once_wait_for_the_end_told(sidecar):
    one = sidecar("one", LONG_HOLD)
    turn = one.call("POST", "/v1/hold", {"roles": ["a"], "wait": 30, "alive": 60})[1]["held"][0]
    one.process.terminate()
    one.process.terminate()
    time.sleep(0.3)
    assert one.process.poll() is None, "its consumer was told a later end"
    field = one.call("GET", "/v1/role?name=a")[1]
    assert (field["held"], field["token"]) == (True, turn["token"])


def test_third_signal_ends_it_at_once(sidecar):
    one = sidecar("one", LONG_HOLD)
    assert one.call("POST", "/v1/hold", {"roles": ["a"], "wait": 30, "alive": 60})[1]["held"]
    for number in range(3):
        one.process.send_signal(signal.SIGINT)  # two that are pending at once count as one
        text = ("draining", "waits for no successor; another", "")[number]
        wait_for(lambda text=text: text in one.said() or one.process.poll() is not None)
    assert one.process.wait(DEADLINE_S) == 128 + signal.SIGINT

"""Test Redis servers: faults, kept data, copies, settings, the fixture."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time

import pytest
import redis
import trustme
from processes import is_alive, thread_states
from servers_support import client_of

from rink.errors import ConfigError, UsageError
from rink.testing import RedisServerUnavailable, TlsFiles, local_redis
from rink.testing.process import ports
from rink.testing.process.ports import free_ports
from rink.testing.redis_server import start

pytestmark = [pytest.mark.waits, pytest.mark.usefixtures("no_given_redis")]


# --------------------------------------------------------------------------- one node


def test_killed_node_has_its_data_and_address_again():
    with local_redis() as node, client_of(node.url) as client:
        client.set("a", "1")
        pid, url = node.pid, node.url
        node.kill()
        assert not node.is_running
        assert node.pid is None
        assert not is_alive(pid)
        with pytest.raises(redis.ConnectionError):
            client.get("a")
        node.kill()
        node.start()
        assert node.url == url
        assert client.get("a") == "1"
        node.restart()
        assert client.get("a") == "1"
        assert node.pid != pid


def test_frozen_node_answers_nothing_until_it_is_thawed():
    with local_redis() as node, client_of(node.url) as client:
        client.set("a", "1")
        node.freeze()
        assert thread_states(node.pid) == {"T"}
        assert node.is_running
        assert node.is_frozen
        assert not node.is_healthy
        with pytest.raises(redis.TimeoutError):
            client.get("a")
        node.thaw()
        assert not node.is_frozen
        node.wait_healthy()
        assert client.get("a") == "1"


def test_frozen_node_can_be_stopped_and_killed():
    with local_redis() as node:
        node.freeze()
        node.stop()
        assert not node.is_running
        node.start()
        node.freeze()
        node.kill()
        assert not node.is_frozen
        node.start()
        assert node.is_healthy


def test_given_folder_survives_with_its_port(tmp_path):
    with local_redis(data_dir=tmp_path) as node:
        node.call("SET", "a", "1")
        url = node.url
    with local_redis(data_dir=tmp_path) as node:
        assert node.url == url
        assert node.call("GET", "a") == "1"
        assert node.log_path.is_relative_to(tmp_path)


def test_node_that_loads_its_data_is_not_healthy():
    # While it loads a snapshot it answers after each key, but of an append-only file only after
    # each thousand.
    slow = ("--key-load-delay", "30000", "--loading-process-events-interval-bytes", "1024")
    more = (*slow, "--rdbcompression", "no")
    with local_redis(appendonly=False, extra_args=more) as node:
        for i in range(100):
            node.call("SET", f"key-{i}", "x" * 1000)
        node.stop()
        node.start(wait=False)
        answers = set()
        while not node.is_healthy:
            answers.add(node._last_answer)
        assert [each for each in answers if "error: LOADING" in each]
        assert node.call("DBSIZE") == 100


def test_setting_that_redis_refuses_shows_its_log():
    refused = pytest.raises(RedisServerUnavailable, match=r"(?s)is not running.*no-such-thing")
    with refused, local_redis(extra_args=("--no-such-thing", "1")):
        pass


def test_settings_reach_the_server():
    more = ("--maxmemory-policy", "allkeys-lru")
    with local_redis(appendfsync="always", maxmemory="100mb", extra_args=more) as node:
        for name, value in [
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("maxmemory", str(100 << 20)),
            ("maxmemory-policy", "allkeys-lru"),
        ]:
            assert node.call("CONFIG", "GET", name) == [name, value]


def test_kill_without_append_only_file_loses_what_stop_keeps():
    with local_redis(appendonly=False) as node:
        node.call("SET", "a", "1")
        node.restart()
        node.call("SET", "a", "2")
        node.kill()
        node.start()
        assert node.call("GET", "a") == "1"


def test_stop_that_redis_refuses_is_repeated():
    # Redis refuses to exit while a child writes the first append-only file.
    with local_redis(appendonly=False) as node:
        for i in range(10):
            node.call("SET", f"key-{i}", "x")
        node.call("CONFIG", "SET", "rdb-key-save-delay", "300000")  # microseconds for each key
        node.call("CONFIG", "SET", "appendonly", "yes")
        node.stop()
        assert "Writing initial AOF, can't exit" in node.log_path.read_text()


# --------------------------------------------------------------------------- older data


@pytest.mark.parametrize("appendonly", [True, False])
def test_restore_copy_goes_back_each_time(appendonly):
    with local_redis(appendonly=appendonly) as node, client_of(node.url) as client:
        client.xadd("orders", {"n": "1"}, id="1-0")
        first = node.save_copy()
        client.xadd("orders", {"n": "2"}, id="2-0")
        second = node.save_copy()
        client.flushall()
        for copy, length in [(first, 1), (second, 2), (first, 1)]:
            url = node.url
            node.restore_copy(copy)
            assert node.url == url
            assert client.xlen("orders") == length
            client.xadd("orders", {"n": "3"})  # not in the copy


@pytest.mark.parametrize("how", ["frozen", "killed"])
def test_frozen_or_killed_node_can_be_copied(how):
    with local_redis() as node:
        node.call("SET", "a", "1")
        node.freeze() if how == "frozen" else node.kill()
        copy = node.save_copy()
        assert node.is_frozen == (how == "frozen")
        node.thaw()
        node.start()
        node.call("SET", "a", "2")
        node.restore_copy(copy)
        assert node.call("GET", "a") == "1"


def test_copy_during_writes_has_all_acknowledged_writes():
    with local_redis() as node, client_of(node.url) as client:
        is_over, acknowledged = threading.Event(), []

        def write():
            while not is_over.is_set():
                acknowledged.append(client.incr("n"))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            copies = []
            for _ in range(10):
                before = len(acknowledged)
                copies.append((before, node.save_copy(), len(acknowledged) + 1))
                time.sleep(0.01)
        finally:
            is_over.set()
            writer.join()
        assert node.is_healthy
        for before, copy, after in copies:
            node.restore_copy(copy)
            assert before <= int(client.get("n") or 0) <= after


def test_node_starts_on_the_copy_of_another_node():
    with local_redis() as first, local_redis(appendfsync="no") as second:
        first.call("SET", "a", "1")
        second.restore_copy(first.save_copy())
        assert second.call("GET", "a") == "1"


# --------------------------------------------------------------------------- where it comes from


def test_port_that_another_process_took_is_replaced(monkeypatch):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        chosen = []

        def taken_port_first(count):
            chosen.append(free_ports(count) if chosen else [taken])
            return chosen[-1]

        monkeypatch.setattr(ports, "free_ports", taken_port_first)
        with local_redis() as node:
            assert node.is_healthy
            assert [node.port] == chosen[1]


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_given_server_is_used_and_cannot_be_broken(how, monkeypatch):
    with local_redis(password="secret") as node:
        if how == "environment":
            monkeypatch.setenv("RINK_TEST_REDIS", node.url + "/3")
        given = local_redis(url=node.url + "/3") if how == "argument" else local_redis()
        with given as same:
            assert same.url == node.url + "/3"
            assert same.is_given
            assert same.is_running
            assert same.is_healthy
            assert same.pid is None
            assert same.log_path is None
            for verb in (same.kill, same.freeze, same.thaw, same.stop, same.restart):
                with pytest.raises(UsageError, match=r"the Redis at .* was given by url= or RINK_"):
                    verb()
            with pytest.raises(UsageError, match="cannot be copied"):
                same.save_copy()
            node.call("SET", "a", "1")
            same.call("SET", "a", "2")
            same.flush()
            assert (node.call("DBSIZE"), same.call("DBSIZE")) == (1, 0)
        assert node.is_healthy


def test_given_address_without_a_server_names_it_in_the_error(monkeypatch):
    monkeypatch.setattr(start, "GIVEN_DEADLINE_S", 0.3)
    (port,) = free_ports(1)
    refused = pytest.raises(RedisServerUnavailable, match=rf"(?s)127.0.0.1:{port}.*RINK_TEST_REDIS")
    with refused, local_redis(url=f"redis://127.0.0.1:{port}"):
        pass


def test_given_url_with_a_wrong_password_fails_and_hides_it(monkeypatch):
    monkeypatch.setattr(start, "GIVEN_DEADLINE_S", 5.0)  # time for an answer
    with local_redis(password="secret") as node:
        wrong = f"redis://:wrong@127.0.0.1:{node.port}"
        refused = pytest.raises(RedisServerUnavailable, match="WRONGPASS")
        with refused as caught, local_redis(url=wrong):
            pass
        assert ":wrong" not in str(caught.value)


def test_without_redis_server_the_error_names_the_remedies(monkeypatch):
    monkeypatch.setenv("PATH", "")
    refused = pytest.raises(ConfigError, match=r"apt-get install redis-server.*RINK_TEST_REDIS")
    with refused, local_redis():
        pass


# --------------------------------------------------------------------------- users, TLS


@pytest.mark.parametrize("password", ["secret", 'a b"c\\d:@/%é'])
def test_password_is_required_from_the_start(password):
    with local_redis(password=password) as node:
        with client_of(node.url) as client:
            assert client.set("a", "1")
        with (
            client_of(node.endpoint) as stranger,
            pytest.raises(redis.AuthenticationError),
        ):
            stranger.get("a")
        assert node.is_healthy
        node.call("CONFIG", "SET", "requirepass", "another")  # as an operator may
        assert node.is_healthy
        with client_of(node.url) as late, pytest.raises(redis.AuthenticationError):
            late.get("a")


def test_acl_user_may_do_what_its_rules_allow():
    rules = ("default off", "worker on >pw ~orders:* &* +@all -@dangerous")
    with local_redis(acl=rules) as node:
        with client_of(node.endpoint, username="worker", password="pw") as worker:
            assert worker.set("orders:1", "1")
            with pytest.raises(redis.exceptions.NoPermissionError):
                worker.set("other", "1")
            with pytest.raises(redis.exceptions.NoPermissionError):
                worker.flushall()
        with client_of(node.url) as nobody, pytest.raises(redis.AuthenticationError):
            nobody.get("a")
        node.restart()
        assert node.is_healthy


def test_with_tls_only_clients_that_speak_it_get_in(tmp_path):
    ca = trustme.CA()
    files = TlsFiles(tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem", True)
    certificate = ca.issue_cert("127.0.0.1", "localhost")
    ca.cert_pem.write_to_path(str(files.ca))
    certificate.private_key_pem.write_to_path(str(files.key))
    certificate.cert_chain_pems[0].write_to_path(str(files.cert))
    with local_redis(tls=files, password="pw") as node:
        assert node.url.startswith("rediss://")
        tls = {"ssl_ca_certs": files.ca, "ssl_certfile": files.cert, "ssl_keyfile": files.key}
        with client_of(node.url, **tls) as client:
            assert client.set("a", "1")
        plain = node.url.replace("rediss:", "redis:")
        with client_of(plain) as stranger, pytest.raises(redis.ConnectionError):
            stranger.get("a")
        node.restart()
        with local_redis(url=node.url, tls=files) as given:
            assert given.call("GET", "a") == "1"


# --------------------------------------------------------------------------- the fixture


@pytest.mark.parametrize("round_", [1, 2, 3])
def test_fixture_gives_a_running_empty_server(rink_redis, round_):
    assert rink_redis.call("DBSIZE") == 0
    rink_redis.call("SET", "a", "1")
    rink_redis.call("SELECT", 1)
    assert rink_redis.is_healthy
    rink_redis.freeze() if round_ == 1 else rink_redis.kill()


def test_fixture_refuses_a_given_database_with_keys(tmp_path):
    test = tmp_path / "test_it.py"
    test.write_text("def test_it(rink_redis):\n    assert rink_redis.call('DBSIZE') == 0\n")
    with local_redis() as node:

        def outcome(database):
            return subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)],
                env={**os.environ, "RINK_TEST_REDIS": f"{node.url}/{database}"},
                cwd=tmp_path, capture_output=True, text=True, check=False,
            ).stdout  # fmt: skip

        node.call("SET", "dear", "1")
        assert "holds 1 key," in outcome(0)
        assert "1 passed" in outcome(1)
        assert node.call("GET", "dear") == "1"

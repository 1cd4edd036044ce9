"""Test commands to Redis servers of tests, on a scripted server."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading

import pytest

from rink.errors import ConfigError
from rink.testing import RedisServerError, RedisServerUnavailable, local_redis
from rink.testing.process.process import GivenProcess
from rink.testing.redis_server import node as node_module
from rink.testing.redis_server.command import send_command
from rink.testing.redis_server.node import RedisNode, fields
from rink.testing.redis_server.url import check_url, endpoint_of, redis_url

# --------------------------------------------------------------------------- URLs


@pytest.mark.parametrize(
    ("settings", "url"),
    [
        ({}, "redis://there:1"),
        ({"tls": True, "password": "p@:"}, "rediss://:p%40%3A@there:1"),
        ({"user": "worker", "password": "pw"}, "redis://worker:pw@there:1"),
    ],
)
def test_redis_url_quotes_login_and_endpoint_hides_it(settings, url):
    assert redis_url("there", 1, **settings) == url
    check_url(url)
    assert endpoint_of(url + "/3") == f"{url.partition(':')[0]}://there:1"


def test_endpoint_of_a_url_without_a_port_has_the_default_port():
    assert endpoint_of("redis://worker:pw@[::1]") == "redis://[::1]:6379"


@pytest.mark.parametrize(
    "url",
    [
        "there:6379",
        "http://there",
        "redis://",
        "redis://there:port",
        "redis://there/name",
        "unix:///run/redis",
    ],
)
def test_invalid_url_is_a_config_error(url):
    with pytest.raises(ConfigError, match="is not the URL of a Redis server"):
        check_url(url)


def test_invalid_url_in_an_error_hides_the_password():
    with pytest.raises(ConfigError) as caught:
        check_url("http://worker:hidden@there")
    assert "hidden" not in str(caught.value)


def test_info_is_read_by_its_names():
    assert fields("# Server\r\nrole:master\r\nurl:a:b\r\n\r\n") == {"role": "master", "url": "a:b"}


# --------------------------------------------------------------------------- commands


def read_command(stream):
    """Return the words of the next command; at the end there are none."""
    count = stream.readline()[1:]
    words = []
    for _ in range(int(count or 0)):
        size = int(stream.readline()[1:])
        words.append(stream.read(size + 2)[:-2].decode())
    return words


@contextlib.contextmanager
def scripted(*scripts):
    """Serve scripted answers; give the port and the received commands.

    Connections are served one after the other. Each script has the answers of one connection by
    the first word of the command. The default is +OK. After an answer that does not end a line, the
    connection is closed.
    """
    commands = []

    def serve(script, stream):
        while words := read_command(stream):
            commands.append(words)
            answer = script.get(words[0], b"+OK\r\n")
            stream.write(answer)
            stream.flush()
            if not answer.endswith(b"\r\n"):
                return

    def run():
        for script in scripts:
            connection, _ = listener.accept()
            with connection, connection.makefile("rwb") as stream:
                serve(script, stream)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run)
        thread.start()
        yield listener.getsockname()[1], commands
        thread.join()


def test_command_has_login_and_database_before_it():
    with scripted({"PING": b"+PONG\r\n"}) as (port, commands):
        url = redis_url("127.0.0.1", port, user="worker", password="p w") + "/3"
        assert send_command(url, "PING", timeout=20) == "PONG"
    assert commands == [["AUTH", "worker", "p w"], ["SELECT", "3"], ["PING"]]


def test_password_without_a_user_logs_in_the_default_user():
    with scripted({"PING": b"+PONG\r\n"}) as (port, commands):
        url = redis_url("127.0.0.1", port, password="pw")
        assert send_command(url, "PING", timeout=20) == "PONG"
    assert commands[0] == ["AUTH", "pw"]


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (b":-12\r\n", -12),
        (b"$4\r\na\r\nb\r\n", "a\r\nb"),
        (b"$2\r\n\xff\x00\r\n", "\ufffd\x00"),
        (b"$-1\r\n", None),
        (b"*3\r\n:1\r\n*1\r\n$1\r\na\r\n$-1\r\n", [1, ["a"], None]),
        # redis-py would make other values of these.
        (b"*4\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n2\r\n", ["a", "1", "b", "2"]),
    ],
)
def test_answer_comes_back_as_the_server_sent_it(answer, value):
    with scripted({"HGETALL": answer}) as (port, _):
        assert send_command(redis_url("127.0.0.1", port), "HGETALL", "a", timeout=20) == value


def test_refused_login_ends_the_command_with_its_code():
    with scripted({"AUTH": b"-WRONGPASS invalid\r\n"}) as (port, commands):
        with pytest.raises(RedisServerError, match=rf"127.0.0.1:{port} .*WRONGPASS") as caught:
            send_command(redis_url("127.0.0.1", port, password="pw"), "FLUSHALL", timeout=20)
        assert caught.value.code == "WRONGPASS"
        assert "pw" not in str(caught.value)
    assert commands == [["AUTH", "pw"]]


@pytest.mark.parametrize(
    "line",
    [
        "ERR unknown command",
        "MOVED 15495 127.0.0.1:7001",
        "NOAUTH Authentication required.",
        "LOADING Redis is loading the dataset in memory",
        "MASTERDOWN Link with MASTER is down",
    ],
)
def test_error_of_the_server_keeps_its_line_and_code(line):
    with scripted({"GET": f"-{line}\r\n".encode()}) as (port, commands):
        with pytest.raises(RedisServerError) as caught:
            send_command(redis_url("127.0.0.1", port), "GET", "a", timeout=20)
        assert not isinstance(caught.value, RedisServerUnavailable)
        assert str(caught.value).endswith(line)
        assert caught.value.code == line.split()[0]
    assert commands == [["GET", "a"]]  # nothing is retried


@pytest.mark.parametrize("answer", [b"", b"+PO", b"*2\r\n:1\r\n$", b"HTTP/1.1 400 Bad Request\r\n"])
def test_answer_that_is_not_whole_is_unavailable(answer):
    unavailable = pytest.raises(RedisServerUnavailable, match="did not answer PING")
    with scripted({"PING": answer}) as (port, commands), unavailable:
        send_command(redis_url("127.0.0.1", port), "PING", timeout=20)
    assert commands == [["PING"]]  # nothing is retried


def test_silent_server_is_unavailable_after_the_timeout():
    refused = pytest.raises(RedisServerUnavailable, match=r"(?i)timeout")
    with socket.create_server(("127.0.0.1", 0)) as silent, refused:
        send_command(redis_url("127.0.0.1", silent.getsockname()[1]), "PING", timeout=0.01)


# --------------------------------------------------------------------------- health


def test_only_a_pong_is_healthy(monkeypatch):
    monkeypatch.setattr(node_module, "_PING_TIMEOUT_S", 20)
    loading = b"-LOADING Redis is loading the dataset in memory\r\n"
    no_login = b"-NOAUTH Authentication required.\r\n"
    scripts = [{"PING": answer} for answer in (loading, no_login, b"", b"+PONG\r\n")]
    with scripted(*scripts) as (port, _):
        url = redis_url("127.0.0.1", port)
        node = RedisNode("n0", url, GivenProcess(url), deadline=0)
        assert not node.is_healthy
        assert "LOADING" in str(node._unavailable("is not ready"))
        assert [node.is_healthy, node.is_healthy, node.is_healthy] == [False, False, True]


@pytest.mark.parametrize("url", [None, "redis://127.0.0.1:1"])
def test_without_redis_py_the_error_names_the_extra(monkeypatch, url):
    monkeypatch.delenv("RINK_TEST_REDIS", raising=False)
    monkeypatch.setitem(sys.modules, "redis", None)
    needs_extra = pytest.raises(ConfigError, match=r"redis-py: pip install 'etcd-rink\[streams\]'")
    with needs_extra, local_redis(url=url):
        pass

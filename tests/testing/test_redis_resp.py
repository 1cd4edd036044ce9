"""What test servers of Redis are spoken to with: commands, answers, addresses; against a played server."""

from __future__ import annotations

import contextlib
import io
import socket
import threading

import pytest

from rink.errors import ConfigError
from rink.testing import RedisServerError, RedisUnavailable
from rink.testing.process.process import GivenProcess
from rink.testing.redis_server import node as node_module
from rink.testing.redis_server.node import RedisNode, fields
from rink.testing.redis_server.resp import Address, address_of, call, decoded, encoded


def answer(content):
    return decoded(io.BytesIO(content))


def test_a_command_is_sent_as_strings_with_their_lengths():
    assert encoded("SET", "é", 12) == b"*3\r\n$3\r\nSET\r\n$2\r\n\xc3\xa9\r\n$2\r\n12\r\n"
    assert encoded(b"\x00\r\n", 1.5) == b"*2\r\n$3\r\n\x00\r\n\r\n$3\r\n1.5\r\n"


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"+OK\r\n", "OK"),
        (b":-12\r\n", -12),
        (b"$0\r\n\r\n", ""),
        (b"$4\r\na\r\nb\r\n", "a\r\nb"),
        (b"$-1\r\n", None),
        (b"*-1\r\n", None),
        (b"*0\r\n", []),
        (b"*3\r\n:1\r\n*1\r\n$1\r\na\r\n$-1\r\n", [1, ["a"], None]),
        (b"*2\r\n+a\r\n-ERR no\r\n", ["a", "ERR no"]),
    ],
)
def test_an_answer_is_read(content, value):
    assert answer(content) == value


def test_an_error_is_an_answer_too_and_has_a_code():
    error = answer(b"-MOVED 15495 127.0.0.1:7001\r\n")
    assert isinstance(error, RedisServerError)
    assert error.code == "MOVED"
    assert str(error) == "MOVED 15495 127.0.0.1:7001"


@pytest.mark.parametrize("content", [b"", b"+OK", b"$4\r\nab", b"$4\r\nabcd\r", b"*2\r\n:1\r\n"])
def test_an_answer_that_ends_early_is_a_lost_connection(content):
    with pytest.raises(ConnectionError, match="amid an answer"):
        answer(content)


def test_what_is_not_redis_is_said_to_be_so():
    with pytest.raises(ValueError, match=r"not what a Redis answers: b'HTTP/1\.1 400"):
        answer(b"HTTP/1.1 400 Bad Request\r\n")


# --------------------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://there", Address("there", 6379)),
        ("redis://there:1/", Address("there", 1)),
        ("rediss://:p%40%3A@there:1/2", Address("there", 1, None, "p@:", 2, tls=True)),
        ("redis://worker:pw@[::1]:1", Address("::1", 1, "worker", "pw")),
    ],
)
def test_a_url_names_an_address_and_back(url, address):
    assert address_of(url) == address
    assert address_of(address.url) == address
    assert "pw" not in address.bare


@pytest.mark.parametrize(
    "url", ["there:6379", "http://there", "redis://", "redis://there:port", "redis://there/name"]
)
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ConfigError, match="no address of a Redis"):
        address_of(url)


def test_neither_an_error_nor_a_repr_shows_a_password():
    with pytest.raises(ConfigError) as caught:
        address_of("http://worker:hidden@there")
    assert "hidden" not in str(caught.value)
    assert "hidden" not in repr(address_of("redis://worker:hidden@there"))


def test_info_is_read_by_its_names():
    assert fields("# Server\r\nrole:master\r\nurl:a:b\r\n\r\n") == {"role": "master", "url": "a:b"}


# --------------------------------------------------------------------------- calls


@contextlib.contextmanager
def played(*answers):
    """A server that gives one connection after the other these answers, whatever it is sent."""
    heard = []

    def serve():
        for given in answers:
            connection, _ = listener.accept()
            with connection:
                for each in given:
                    heard.append(connection.recv(1000))
                    connection.sendall(each)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], heard
        thread.join()


def test_a_call_says_who_we_are_and_which_database_before_it():
    with played([b"+OK\r\n", b"+OK\r\n", b"+PONG\r\n"]) as (port, heard):
        address = Address("127.0.0.1", port, "worker", "pw", 3)
        assert call(address, "PING", timeout=20) == "PONG"
    assert heard == [encoded("AUTH", "worker", "pw"), encoded("SELECT", 3), encoded("PING")]


def test_a_password_without_a_user_is_the_default_user_s():
    with played([b"+OK\r\n", b"+PONG\r\n"]) as (port, heard):
        assert call(Address("127.0.0.1", port, password="pw"), "PING", timeout=20) == "PONG"
    assert heard[0] == encoded("AUTH", "pw")


def test_who_is_not_let_in_asks_nothing_more():
    with played([b"-WRONGPASS invalid\r\n"]) as (port, heard):
        with pytest.raises(
            RedisServerError, match=rf"127.0.0.1:{port} refused: WRONGPASS"
        ) as caught:
            call(Address("127.0.0.1", port, password="pw"), "FLUSHALL", timeout=20)
        assert caught.value.code == "WRONGPASS"
        assert "pw" not in str(caught.value)
    assert heard == [encoded("AUTH", "pw")]


@pytest.mark.parametrize("said", [b"", b"+PO", b"HTTP/1.1 400 Bad Request\r\n"])
def test_who_does_not_answer_as_a_redis_is_unavailable(said):
    with played([said]) as (port, _), pytest.raises(RedisUnavailable, match="did not answer"):
        call(Address("127.0.0.1", port), "PING", timeout=20)


def test_who_answers_nothing_is_waited_for_no_longer_than_told():
    refused = pytest.raises(RedisUnavailable, match="timed out")
    with socket.create_server(("127.0.0.1", 0)) as silent, refused:
        call(Address("127.0.0.1", silent.getsockname()[1]), "PING", timeout=0.01)


def test_only_a_pong_is_healthy(monkeypatch):
    monkeypatch.setattr(node_module, "_ANSWERS_WITHIN_S", 20)
    loading = b"-LOADING Redis is loading the dataset in memory\r\n"
    with played([loading], [b"-NOAUTH Authentication required.\r\n"], [b"+PONG\r\n"]) as (port, _):
        address = Address("127.0.0.1", port)
        node = RedisNode("one", address, GivenProcess(address.bare), deadline=0)
        assert not node.is_healthy
        assert "LOADING" in str(node._trouble("is not ready"))
        assert [node.is_healthy, node.is_healthy] == [False, True]

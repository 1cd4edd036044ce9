"""Recognize transient errors.

Those of other packages are known by name, without importing the packages.
"""

import asyncio
import errno
import socket
import sqlite3
import subprocess
import sys

import pytest
import redis
import sqlalchemy
from sqlalchemy import exc, text

from rink.errors import ConfigError, EtcdUnavailable
from rink.streams import TRANSIENT, App, EventTimeout, Record
from rink.streams.failure_policy import Policy
from rink.streams.transient_errors import is_transient


def named(module, *names):
    """Return a class of these names, each a subclass of the previous one.

    Other packages may have such classes.
    """
    made = Exception
    for name in names:
        made = type(name, (made,), {"__module__": module})
    return made


def raised(error, cause=None):
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def refused_by(url, statement=None):
    """Return SQLAlchemy's error of a statement, or of a connect."""
    engine = sqlalchemy.create_engine(url)
    try:
        with engine.connect() as connection:
            connection.execute(text(statement))
    except exc.SQLAlchemyError as error:
        return error
    finally:
        engine.dispose()


NOT_THERE = "postgresql+psycopg://u:p@127.0.0.1:1/x"

PASSING = [
    ConnectionRefusedError(errno.ECONNREFUSED, "refused"),
    BrokenPipeError(errno.EPIPE, "broken"),
    TimeoutError("no answer"),
    OSError(errno.EHOSTUNREACH, "No route to host"),
    OSError(
        "Multiple exceptions: [Errno 111] Connect call failed, [Errno 111] Connect call failed"
    ),
    socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
    EtcdUnavailable("no endpoint answered"),
    redis.ConnectionError("refused"),
    redis.TimeoutError("no answer"),
    redis.exceptions.BusyLoadingError("LOADING"),
    redis.exceptions.ReadOnlyError("READONLY"),
    named("httpx", "TransportError", "NetworkError", "ConnectError")("refused"),
    named("httpx", "TransportError", "TimeoutException", "ReadTimeout")("no answer"),
    named("httpx", "TransportError", "ProtocolError", "RemoteProtocolError")("disconnected"),
    named("aiohttp", "ClientConnectionError", "ClientOSError", "ClientConnectorError")("refused"),
    named("aiohttp", "ClientError", "ClientPayloadError")("the body ended early"),
    named("requests", "RequestException", "ConnectionError", "ProxyError")("refused"),
    named("requests", "RequestException", "Timeout", "ReadTimeout")("no answer"),
    named("requests", "RequestException", "ChunkedEncodingError")("the body ended early"),
    raised(RuntimeError("the bank is away"), ConnectionResetError()),
    ExceptionGroup("all", [ConnectionError(), ExceptionGroup("more", [TimeoutError()])]),
    raised(ValueError("wrapped"), ExceptionGroup("all", [ConnectionError()])),
]

STAYING = [
    ValueError("bad"),
    FileNotFoundError(errno.ENOENT, "no such file"),
    PermissionError(errno.EACCES, "not allowed"),
    OSError(errno.ENOSPC, "disk full"),
    OSError("odd"),
    socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
    redis.ResponseError("WRONGTYPE"),
    redis.exceptions.DataError("odd"),
    named("httpx", "HTTPError", "HTTPStatusError")("404"),
    named("httpx", "TransportError", "UnsupportedProtocol")("ftp"),
    named("aiohttp", "ClientError", "ClientResponseError")("404"),
    named("requests", "RequestException", "HTTPError")("404"),
    named("requests", "RequestException", "InvalidURL")("no host"),
    named("shop.httpx", "NetworkError")("of another package"),
    EventTimeout("too long"),
    raised(EventTimeout("too long"), ConnectionError()),
    ExceptionGroup("some", [ConnectionError(), ValueError()]),
    sqlite3.OperationalError("database is locked"),
]


@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_transient_by_default_are_outages(error):
    assert is_transient(error, TRANSIENT)


@pytest.mark.parametrize("error", STAYING, ids=repr)
def test_transient_by_default_is_nothing_else(error):
    assert not is_transient(error, TRANSIENT)


def test_sqlalchemy_that_cannot_connect_is_transient():
    assert is_transient(refused_by(NOT_THERE, "SELECT 1"), TRANSIENT)


@pytest.mark.parametrize("statement", ["SELECT * FROM missing", "SELEKT"])
def test_sqlalchemy_statement_that_fails_is_not_transient(statement):
    error = refused_by("sqlite://", statement)
    assert isinstance(error, exc.OperationalError)
    assert not is_transient(error, TRANSIENT)


@pytest.mark.parametrize(
    ("kind", "invalidated", "passes"),
    [
        (exc.OperationalError, True, True),
        (exc.InterfaceError, True, True),
        (exc.OperationalError, False, False),
        (exc.IntegrityError, False, False),
    ],
)
def test_sqlalchemy_errors_pass_where_the_connection_broke(kind, invalidated, passes):
    error = kind("INSERT …", {}, Exception("orig"), connection_invalidated=invalidated)
    assert is_transient(error, TRANSIENT) == passes


def test_integrity_error_at_a_commit_is_not_transient():
    assert not is_transient(exc.IntegrityError(None, None, Exception("deferred")), TRANSIENT)


def test_circle_of_causes_ends():
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert not is_transient(one, TRANSIENT)


def test_functions_and_classes_are_asked_in_turn(caplog):
    def breaks(error):
        raise KeyError(error)

    kinds = (breaks, lambda error: "503" in str(error), LookupError)
    assert is_transient(ValueError("503"), kinds)
    assert is_transient(IndexError("x"), kinds)
    assert not is_transient(ValueError("404"), kinds)
    assert "counts as not transient" in caplog.text


@pytest.mark.parametrize(
    "kinds",
    [ConnectionError, "ConnectionError", (1,), (int,), ("ConnectionError",), None, {OSError}],
)
def test_transient_that_cannot_be_asked_is_refused(kinds):
    with pytest.raises(ConfigError, match="transient="):
        Policy(transient=kinds)


def test_transient_may_be_a_list_or_empty():
    assert Policy(transient=[ConnectionError]).transient == (ConnectionError,)
    assert not Policy(transient=()).is_transient(ConnectionError())


def test_packages_are_not_imported_for_their_names():
    """Declare an app without the packages.

    Its errors are judged without the packages, too.
    """
    code = (
        "import sys; from rink.streams import TRANSIENT; "
        "from rink.streams.transient_errors import is_transient; "
        "assert is_transient(ConnectionError(), TRANSIENT); "
        "assert not is_transient(ValueError(), TRANSIENT); "
        "print({'httpx', 'sqlalchemy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_real_connect_to_a_name_of_two_addresses_is_transient():
    """Connect as asyncio does, to several addresses."""

    async def connect():
        await asyncio.open_connection("localhost", 1)

    with pytest.raises(OSError) as caught:
        asyncio.run(connect())
    assert is_transient(caught.value, TRANSIENT)


class Order(Record):
    customer: str


def test_app_extends_what_is_transient():
    app = App("shop")
    orders = app.stream("orders", record=Order, partition_by="customer")

    @app.processor(orders, transient=(*TRANSIENT, KeyError))
    async def bill(events): ...

    policy = app.processors["bill"].policy
    assert policy.is_transient(KeyError())
    assert policy.is_transient(ConnectionError())

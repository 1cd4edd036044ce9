"""The little of Redis' protocol (RESP2) that test servers are spoken to with: one call, one connection.

The redis package is an extra, and its pools and retries would hide how a server is; this says what
one server answered, or that it did not. Not for use in production, nor for many calls a second.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

import attrs

from rink.errors import ConfigError, RinkError

if TYPE_CHECKING:
    from collections.abc import Iterator

Reply = Any  # str, int, None, or a list of them: whoever asks knows which
Word = str | bytes | int | float


class RedisServerError(RinkError):
    """A call to a test's Redis that did not succeed; the message names where it is.

    Attributes:
        code: the first word of what Redis answered, such as "MOVED" or "NOAUTH".
    """

    def __init__(self, *args: object, code: str = "") -> None:
        super().__init__(*args)
        self.code = code


class RedisUnavailable(RedisServerError):  # noqa: N818 - as EtcdUnavailable
    """Nothing answered within the deadline; a command may still have been carried out."""


@attrs.frozen
class Address:
    """Where a Redis is, and as whom we speak with it.

    Attributes:
        host: a name or an address.
        port: its port.
        user: whom we say we are; None is the default user.
        password: of that user; None is without AUTH.
        database: its number.
        tls: whether it speaks TLS.
    """

    host: str
    port: int
    user: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    database: int = 0
    tls: bool = False

    @property
    def bare(self) -> str:
        """Return the address as a URL that tells no password."""
        scheme = "rediss" if self.tls else "redis"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"

    @property
    def url(self) -> str:
        """Return the URL as clients take it.

        Its form is redis://[[user]:password@]host:port[/database].
        """
        scheme, _, rest = self.bare.partition("://")
        who = ""
        if self.password is not None:
            who = f"{quote(self.user or '', safe='')}:{quote(self.password, safe='')}@"
        return f"{scheme}://{who}{rest}" + (f"/{self.database}" if self.database else "")


def address_of(url: str) -> Address:
    """The address that a URL names.

    Raises:
        ConfigError: it is not redis://… or rediss://… with a host.
    """
    parts = urlsplit(url)
    try:
        database = int(parts.path.strip("/") or 0)
        port = parts.port or 6379
    except ValueError as error:
        raise ConfigError(f"{_masked(url)} is no address of a Redis: {error}") from error
    if parts.scheme not in {"redis", "rediss"} or not parts.hostname:
        raise ConfigError(
            f"{_masked(url)} is no address of a Redis: redis://host:port, or rediss:// with TLS"
        )
    return Address(
        host=parts.hostname,
        port=port,
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password is not None else None,
        database=database,
        tls=parts.scheme == "rediss",
    )


def call(
    address: Address, *words: Word, timeout: float, context: ssl.SSLContext | None = None
) -> Reply:
    """Return what the server answers to one command.

    Args:
        address: where it is, and as whom it is asked.
        words: the command and its arguments.
        timeout: seconds for each wait.
        context: for TLS.

    Raises:
        RedisError: it answered with an error, which `code` has the first word of.
        RedisUnavailable: it did not answer in time, or not at all.
    """
    before: list[tuple[Word, ...]] = []
    if address.password is not None:
        user = () if address.user is None else (address.user,)
        before.append(("AUTH", *user, address.password))
    if address.database:
        before.append(("SELECT", address.database))
    try:
        with _connected(address, timeout, context) as (connection, answers):
            for command in (*before, words):
                connection.sendall(encoded(*command))
                reply = decoded(answers)
                if isinstance(reply, RedisServerError):
                    break
    except (OSError, ValueError) as error:
        raise RedisUnavailable(f"the Redis at {address.bare} did not answer: {error}") from error
    if isinstance(reply, RedisServerError):
        raise RedisServerError(f"the Redis at {address.bare} refused: {reply}", code=reply.code)
    return reply


def encoded(*words: Word) -> bytes:
    """A command as it is sent."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    sized = b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
    return b"*%d\r\n%s" % (len(parts), sized)


def decoded(answers: IO[bytes]) -> Reply:
    """The next answer; an error is returned, since within a list it is one answer among others.

    Raises:
        ConnectionError: the server closed the connection.
        ValueError: this is not Redis' protocol.
    """
    line = answers.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("the connection was closed amid an answer")
    kind, rest = line[:1], line[1:-2]
    match kind:
        case b"+":
            return rest.decode(errors="replace")
        case b"-":
            said = rest.decode(errors="replace")
            return RedisServerError(said, code=said.partition(" ")[0])
        case b":":
            return int(rest)
        case b"$":
            return _bulk(answers, int(rest))
        case b"*":
            return None if rest == b"-1" else _items(answers, int(rest))
    raise ValueError(f"this is not what a Redis answers: {line[:80]!r}")


def _bulk(answers: IO[bytes], size: int) -> str | None:
    if size < 0:
        return None
    content = answers.read(size + 2)
    if len(content) < size + 2:
        raise ConnectionError("the connection was closed amid an answer")
    return content[:-2].decode(errors="replace")


def _items(answers: IO[bytes], size: int) -> list[Reply]:
    items = [decoded(answers) for _ in range(size)]
    return [str(item) if isinstance(item, RedisServerError) else item for item in items]


@contextlib.contextmanager
def _connected(
    address: Address, timeout: float, context: ssl.SSLContext | None
) -> Iterator[tuple[socket.socket, IO[bytes]]]:
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(
            socket.create_connection((address.host, address.port), timeout)
        )
        if address.tls:
            context = context or ssl.create_default_context()
            connection = stack.enter_context(
                context.wrap_socket(connection, server_hostname=address.host)
            )
        yield connection, stack.enter_context(connection.makefile("rb"))


def _masked(url: str) -> str:
    """Without what may be a password."""
    head, at, tail = url.rpartition("@")
    return f"{head.partition('://')[0]}://…@{tail}" if at else url

"""Send one command to a Redis server of a test.

There are no retries and no pool, because a test must see the server's answer to this one command.
The module needs redis-py, of the extra `streams`, so it is imported at the first command.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import redis
from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, DefaultParser, parse_url
from redis.retry import Retry

from rink.testing.redis_server.errors import RedisServerError, RedisServerUnavailable
from rink.testing.redis_server.url import endpoint_of

if TYPE_CHECKING:
    from rink.testing.process.server import TlsFiles


# With these arguments, redis-py does not send its name and version before the command. Newer
# versions of redis-py have `driver_info` instead of the other two arguments.
_ANONYMOUS: dict[str, None] = (
    {"driver_info": None}
    if "driver_info" in inspect.signature(AbstractConnection).parameters
    else {"lib_name": None, "lib_version": None}
)


class _ErrorLineParser(DefaultParser):  # type: ignore[misc, valid-type]
    """Keep the whole line of every error.

    redis-py drops the first word of the errors that it knows, and raises LOADING and NOAUTH as
    connection errors. With this parser, every error of the server is a ResponseError. No other
    error is a ResponseError.
    """

    @classmethod
    def parse_error(cls, response: str) -> redis.ResponseError:
        return redis.ResponseError(response)


def send_command(
    url: str, *words: str | bytes | float, timeout: float, tls: TlsFiles | None = None
) -> Any:
    """Return the server's answer to one command, with strings decoded.

    Args:
        url: the server's URL. The user in it logs in.
        words: the command and its arguments.
        timeout: seconds for each wait.
        tls: the certificates; None verifies a rediss:// server by the system's authorities.

    Raises:
        RedisServerError: the server answered with an error; `code` is its first word.
        RedisServerUnavailable: the server did not answer in time, or not as a Redis does.
    """
    server = f"Redis at {endpoint_of(url)}"
    connection = _connection(url, timeout, tls)
    try:
        connection.send_command(*words)
        return connection.read_response()
    except redis.ResponseError as error:
        code = str(error).partition(" ")[0]
        message = f"{server} answered {words[0]!s} with an error: {error}"
        raise RedisServerError(message, code=code) from error
    except (redis.RedisError, OSError) as error:
        raise RedisServerUnavailable(f"{server} did not answer {words[0]!s}: {error}") from error
    finally:
        connection.disconnect()


def _connection(url: str, timeout: float, tls: TlsFiles | None) -> Any:
    parts = parse_url(url)  # type: ignore[no-untyped-call]
    settings = {
        name: parts[name]
        for name in ("host", "port", "username", "password", "db")
        if name in parts
    }
    connection_class: Any = redis.Connection
    if url.startswith("rediss:"):
        connection_class = redis.SSLConnection
        if tls is not None:
            settings |= {
                "ssl_ca_certs": str(tls.ca),
                "ssl_certfile": str(tls.cert),
                "ssl_keyfile": str(tls.key),
            }
    return connection_class(
        **settings,
        **_ANONYMOUS,
        protocol=2,
        decode_responses=True,
        encoding_errors="replace",
        parser_class=_ErrorLineParser,
        retry=Retry(NoBackoff(), 0),
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
    )

"""Build and check the URLs of test servers of Redis."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from rink.errors import ConfigError

_DEFAULT_PORT = 6379


def redis_url(
    host: str, port: int, *, user: str = "", password: str | None = None, tls: bool = False
) -> str:
    """Return a URL for clients: redis://[[user]:password@]host:port.

    Args:
        host: a name or an address.
        port: the port.
        user: the user's name; "" is the default user.
        password: the user's password; None is no login.
        tls: True if the server speaks TLS. Then the URL begins with rediss://.
    """
    scheme = "rediss" if tls else "redis"
    host = f"[{host}]" if ":" in host else host
    login = "" if password is None else f"{quote(user, safe='')}:{quote(password, safe='')}@"
    return f"{scheme}://{login}{host}:{port}"


def endpoint_of(url: str) -> str:
    """Return scheme, host and port of a URL, without password and database."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    return redis_url(host, parts.port or _DEFAULT_PORT, tls=parts.scheme == "rediss")


def check_url(url: str) -> None:
    """Check the URL of an existing Redis server.

    Raises:
        ConfigError: the URL is not redis://… or rediss://… with a host. The message has no
            password.
    """
    parts = urlsplit(url)
    try:
        int(parts.path.strip("/") or 0)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"{_masked(url)} is not the URL of a Redis server: {error}") from error
    if parts.scheme not in {"redis", "rediss"} or not parts.hostname:
        raise ConfigError(
            f"{_masked(url)} is not the URL of a Redis server: write redis://host:port, or "
            "rediss://host:port for TLS"
        )


def _masked(url: str) -> str:
    head, at, tail = url.rpartition("@")
    return f"{head.partition('://')[0]}://…@{tail}" if at else url

"""Start Redis servers of a test: choose ports, and write redis.conf."""

from __future__ import annotations

import functools
import importlib.util
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rink.errors import ConfigError
from rink.pip_distribution import install_command
from rink.testing.process.folders import owned_folder, started
from rink.testing.process.ports import kept_ports
from rink.testing.process.process import GivenProcess, ProcessOwner, ServerReaper
from rink.testing.redis_server.errors import RedisServerError
from rink.testing.redis_server.node import RedisNode
from rink.testing.redis_server.url import check_url, endpoint_of, redis_url

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

    from rink.testing.process.server import TlsFiles

GIVEN_DEADLINE_S = 5.0
HOST = "127.0.0.1"
# Room for a test's data, for a second copy while Redis rewrites the data, and for `save_copy`.
_BYTES_PER_NODE = 128 << 20
# On a server with passwords, `RedisNode.call` logs in as this user, so tests may change all others.
ADMIN_USER = "rink-test"


@attrs.frozen(kw_only=True)
class RedisSettings:
    """Hold the arguments of `local_redis`, which explains them."""

    data_dir: Path | None = None
    appendonly: bool = True
    appendfsync: str = "everysec"
    password: str | None = None
    acl: tuple[str, ...] = ()
    tls: TlsFiles | None = None
    maxmemory: int | str | None = None
    extra_args: tuple[str, ...] = ()
    deadline: float = 30.0

    def __attrs_post_init__(self) -> None:
        if self.appendfsync not in {"always", "everysec", "no"}:
            raise ConfigError(
                f"appendfsync={self.appendfsync!r} is invalid: write 'always', 'everysec' or 'no'"
            )
        if isinstance(self.acl, str):
            raise ConfigError(
                f"acl={self.acl!r} is a string: write a tuple with one string for each user"
            )
        for rule in self.acl:
            if len(rule.split()) < 2 or "\n" in rule:
                raise ConfigError(
                    f"acl has {rule!r}, which is not a user: write its name and its rules, as in "
                    "'worker on >secret ~* +@all'"
                )


def find_redis() -> Path:
    """Return the path of the redis-server on the PATH.

    Raises:
        ConfigError: there is no redis-server on the PATH.
    """
    path = shutil.which("redis-server")
    if path is None:
        raise ConfigError(
            "no Redis to test with: install redis-server (on Debian and Ubuntu: apt-get install "
            "redis-server), or, for local_redis, set RINK_TEST_REDIS to the URL of a running server"
        )
    return Path(path)


def given_redis(url: str, tls: TlsFiles | None) -> RedisNode:
    """Wait until the existing Redis at a URL is healthy, and return its node.

    Raises:
        ConfigError: this is not the URL of a Redis server, or redis-py is missing.
        RedisServerUnavailable: the server is not healthy within five seconds.
    """
    check_url(url)
    _require_redis_py()
    node = RedisNode(
        "given",
        url,
        GivenProcess(endpoint_of(url), "Redis", "url= or RINK_TEST_REDIS"),
        deadline=GIVEN_DEADLINE_S,
        tls=tls,
    )
    node.wait_healthy()
    return node


def redis_folder(
    size: int, data_dir: Path | None = None
) -> contextlib.AbstractContextManager[tuple[Path, ProcessOwner]]:
    """Give a folder for `size` servers and the owner of their processes.

    Raises:
        ConfigError: redis-server or redis-py is missing.
    """
    _require_redis_py()
    owner_of = functools.partial(ServerReaper, find_redis(), error=RedisServerError)
    return owned_folder(owner_of, data_dir, prefix="rink-redis-", room=size * _BYTES_PER_NODE)


def _require_redis_py() -> None:
    if importlib.util.find_spec("redis") is None:
        raise ConfigError(f"a test's Redis server needs redis-py: {install_command('streams')}")


def started_redises(
    size: int,
    folder: Path,
    owner: ProcessOwner,
    settings: RedisSettings,
    *,
    ports: tuple[str, ...] = ("client",),
    more: Callable[[list[dict[str, int]], int], list[str]] | None = None,
) -> tuple[RedisNode, ...]:
    """Return `size` healthy servers.

    Args:
        size: the number of servers.
        folder: the folder of the servers' data.
        owner: starts the servers' processes.
        settings: the settings of each server.
        ports: the names of each server's ports. Clients connect to "client".
        more: returns more lines for a server's redis.conf, from the ports of all servers and the
            server's number.

    Raises:
        RedisServerUnavailable: a server was not healthy by the deadline; shows the end of its log.
    """
    admin_password = secrets.token_hex(16)
    has_users = settings.password is not None or bool(settings.acl)
    admin = [f"user {ADMIN_USER} on >{admin_password} ~* &* +@all"] if has_users else []
    tls = settings.tls is not None

    def node(all_ports: list[dict[str, int]], i: int) -> RedisNode:
        home, port = folder / f"n{i}", all_ports[i]["client"]
        data, conf = home / "data", home / "redis.conf"
        data.mkdir(parents=True, exist_ok=True)
        own_lines = more(all_ports, i) if more else []
        conf.write_text(
            "\n".join([*configuration(port, data, settings), *admin, *own_lines]) + "\n"
        )
        admin_url = redis_url(HOST, port, user=ADMIN_USER, password=admin_password, tls=tls)
        return RedisNode(
            home.name,
            redis_url(HOST, port, password=settings.password, tls=tls),
            owner.process([str(conf), *settings.extra_args], home / "redis.log"),
            deadline=settings.deadline,
            data=data,
            admin_url=admin_url if has_users else None,
            tls=settings.tls,
        )

    def make() -> tuple[RedisNode, ...]:
        all_ports = kept_ports(folder, ports, size)
        return tuple(node(all_ports, i) for i in range(size))

    return started(folder, make)


def configuration(port: int, data: Path, settings: RedisSettings) -> list[str]:
    """Return the lines of redis.conf that `local_redis` sets."""
    lines = [
        f"bind {HOST}",
        *_listening(port, settings.tls),
        f"dir {quoted(str(data))}",
        "daemonize no",
        f"appendonly {'yes' if settings.appendonly else 'no'}",
        f"appendfsync {settings.appendfsync}",
        # Without an append-only file Redis saves a snapshot at an orderly shutdown, if `save` is
        # set.
        *(['save ""'] if settings.appendonly else ["save 3600 1"]),
    ]
    if settings.password is not None:
        lines.append(f"requirepass {quoted(settings.password)}")
    if settings.maxmemory is not None:
        lines.append(f"maxmemory {settings.maxmemory}")
    return lines + [f"user {rule}" for rule in settings.acl]


def _listening(port: int, tls: TlsFiles | None) -> list[str]:
    if tls is None:
        return [f"port {port}"]
    return [
        "port 0",
        f"tls-port {port}",
        f"tls-cert-file {quoted(str(tls.cert))}",
        f"tls-key-file {quoted(str(tls.key))}",
        f"tls-ca-cert-file {quoted(str(tls.ca))}",
        f"tls-auth-clients {'yes' if tls.client_cert_auth else 'no'}",
    ]


def quoted(value: str) -> str:
    """Return a value quoted for redis.conf."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'

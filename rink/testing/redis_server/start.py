"""How a Redis of a test comes to run: which binary, which folder, which ports, which settings."""

from __future__ import annotations

import functools
import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rink.errors import ConfigError
from rink.testing.process.folders import owned_folder, started
from rink.testing.process.ports import free_ports, kept_ports
from rink.testing.process.process import GivenProcess, ProcessOwner, ServerReaper
from rink.testing.redis_server.node import RedisNode
from rink.testing.redis_server.resp import Address, RedisServerError, address_of

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

    from rink.testing.process.server import TlsFiles

GIVEN_DEADLINE_S = 5.0
HOST = "127.0.0.1"
_ROOM_PER_NODE = 128 << 20  # bytes; a test's own data, twice while it is rewritten, and copies
# Who we are to a server that asks for a password: whatever a test does to its users, we get in.
OUR_USER = "rink-test"


@attrs.frozen(kw_only=True)
class RedisSettings:
    """The arguments of `local_redis`, explained there."""

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
            raise ConfigError(f"appendfsync is {self.appendfsync!r}: it is always, everysec or no")
        if isinstance(self.acl, str):
            raise ConfigError(f"acl is one text, {self.acl!r}: give a tuple with one for each user")
        for rule in self.acl:
            if len(rule.split()) < 2 or "\n" in rule:
                raise ConfigError(
                    f"{rule!r} in acl is no user: say its name and its rules, as in "
                    "'worker on >secret ~* +@all'"
                )


def find_redis() -> Path:
    """The redis-server of the PATH.

    Raises:
        ConfigError: there is none.
    """
    found = shutil.which("redis-server")
    if found is None:
        raise ConfigError(
            "no Redis to test with: install redis-server (on Debian and Ubuntu: apt-get install "
            "redis-server), or, for local_redis, give the address of a running one in "
            "RINK_TEST_REDIS"
        )
    return Path(found)


def given_redis(url: str, tls: TlsFiles | None) -> RedisNode:
    """The Redis that somebody else runs at an address, once it answers.

    Raises:
        ConfigError: this is no address of a Redis.
        RedisUnavailable: it does not answer, within five seconds.
    """
    address = address_of(url)
    node = RedisNode(
        "given",
        address,
        GivenProcess(address.bare, "Redis", "url= or RINK_TEST_REDIS"),
        deadline=GIVEN_DEADLINE_S,
        context=tls.context() if tls else None,
    )
    node.wait_healthy()
    return node


def redis_folder(
    size: int, data_dir: Path | None = None
) -> contextlib.AbstractContextManager[tuple[Path, ProcessOwner]]:
    """A folder for so many servers and who owns them, until the `with` ends.

    Raises:
        ConfigError: there is no redis-server.
    """
    owner_of = functools.partial(ServerReaper, find_redis(), error=RedisServerError)
    return owned_folder(owner_of, data_dir, prefix="rink-redis-", room=size * _ROOM_PER_NODE)


def started_redises(
    size: int,
    folder: Path,
    owner: ProcessOwner,
    settings: RedisSettings,
    *,
    ports: tuple[str, ...] = ("client",),
    more: Callable[[list[dict[str, int]], int], list[str]] | None = None,
) -> tuple[RedisNode, ...]:
    """Return so many healthy servers.

    Args:
        size: how many.
        folder: where their data lies.
        owner: who owns them.
        settings: of each.
        ports: the names of the ports of each; "client" is where it answers.
        more: further lines of the configuration of one, given everybody's ports and its number.

    Raises:
        RedisUnavailable: one was not healthy by the deadline; shows the last lines of its log.
    """
    ours = secrets.token_hex(16)

    def make() -> tuple[RedisNode, ...]:
        chosen = kept_ports(folder, ports, size, free_ports)
        return tuple(
            _node(
                f"n{i}",
                each["client"],
                folder,
                owner,
                settings,
                ours,
                more(chosen, i) if more else [],
            )
            for i, each in enumerate(chosen)
        )

    return started(folder, make)


def _node(
    name: str,
    port: int,
    folder: Path,
    owner: ProcessOwner,
    settings: RedisSettings,
    ours: str,
    more: list[str],
) -> RedisNode:
    home = folder / name
    (home / "data").mkdir(parents=True, exist_ok=True)
    guarded = settings.password is not None or bool(settings.acl)
    users = [f"user {OUR_USER} on >{ours} ~* &* +@all"] if guarded else []
    lines = [*configuration(port, home / "data", settings), *users, *more]
    (home / "redis.conf").write_text("\n".join(lines) + "\n")
    address = Address(HOST, port, password=settings.password, tls=settings.tls is not None)
    return RedisNode(
        name,
        address,
        owner.process([str(home / "redis.conf"), *settings.extra_args], home / "redis.log"),
        deadline=settings.deadline,
        data=home / "data",
        ours=attrs.evolve(address, user=OUR_USER, password=ours) if guarded else address,
        context=settings.tls.context() if settings.tls else None,
    )


def configuration(port: int, data: Path, settings: RedisSettings) -> list[str]:
    """The lines of redis.conf that `local_redis` sets; all else is as Redis has it."""
    lines = [
        f"bind {HOST}",
        *_listening(port, settings.tls),
        f"dir {quoted(str(data))}",
        "daemonize no",
        f"appendonly {'yes' if settings.appendonly else 'no'}",
        f"appendfsync {settings.appendfsync}",
        # Without an append-only file an orderly end saves, as Redis does by itself.
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
    """A value as redis.conf takes it, whatever is in it."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'

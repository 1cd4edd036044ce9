"""Run a Redis master and its replica, cut them apart, and fail over."""

from __future__ import annotations

import contextlib
import functools
import secrets
from typing import TYPE_CHECKING

from rink.testing.process.folders import started
from rink.testing.process.ports import kept_ports
from rink.testing.process.server import wait_until
from rink.testing.redis_server.errors import RedisServerError, RedisServerUnavailable
from rink.testing.redis_server.node import RedisNode
from rink.testing.redis_server.start import (
    HOST,
    RedisSettings,
    quoted,
    redis_folder,
    started_redises,
)
from rink.testing.redis_server.url import redis_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rink.testing.process.process import ProcessOwner

SERVICE = "rink"  # the pair's name in Sentinel
# A replica logs in to its master as this user. Disabling the user cuts only replication.
_REPLICA_USER = "rink-replica"
_SENTINEL_USER = "rink-sentinel"
# A Sentinel that did not run for two seconds goes into TILT mode, and does nothing for 30 s.
_SENTINEL_TILT_S = 31.0


class RedisPair:
    """Control a master and its replica; `redis_pair` makes them.

    Attributes:
        master: the node that takes writes. `failover` exchanges it with the replica.
        replica: the node that follows the master. After `failover`, it is the old master, which
            follows the new master only after `heal`, or when the Sentinel demotes it.
        sentinel: the Sentinel that watches both nodes, or None.
        service: the pair's name in the Sentinel.
    """

    service = SERVICE

    def __init__(
        self, master: RedisNode, replica: RedisNode, sentinel: RedisNode | None, deadline: float
    ) -> None:
        self.master = master
        self.replica = replica
        self.sentinel = sentinel
        self._deadline = deadline

    @property
    def sentinel_url(self) -> str | None:
        """Return the URL of the Sentinel, or None."""
        return None if self.sentinel is None else self.sentinel.url

    def cut(self) -> None:
        """Cut replication, so that the replica keeps its data and falls behind.

        Both nodes still serve, and a Sentinel sees no failure. The cut lasts until `heal`, or until
        the master is restarted.

        Raises:
            RedisServerUnavailable: the replica still followed at the deadline.
        """
        self.master.call("ACL", "SETUSER", _REPLICA_USER, "off")
        self.master.call("CLIENT", "KILL", "TYPE", "replica")
        self._wait(lambda: not self._follows(), self.replica, "still follows its master")

    def heal(self) -> None:
        """Make the replica follow the master after a cut or a fail-over.

        Thaw a frozen replica, and start an ended replica. Writes that only the replica has are
        lost, as in production. Return when the replica has all of the master's data. If there is a
        Sentinel, it must have noticed this, too, and it polls every ten seconds.

        Raises:
            RedisServerUnavailable: the replica was not in step by the deadline.
        """
        self.master.call("ACL", "SETUSER", _REPLICA_USER, "on")
        self.replica.configure("replicaof", f"{self.master.host} {self.master.port}")
        self.replica.thaw()
        self.replica.start()
        self.replica.call("REPLICAOF", self.master.host, self.master.port)
        self.wait_replicated()

    def failover(self, *, kill: bool = True) -> RedisNode:
        """Promote the replica, however old its data is, to master.

        If there is a Sentinel, it promotes the replica when it notices that the master is down. If
        the master is neither killed nor frozen, it does so at once.

        Args:
            kill: kill the old master (SIGKILL) first. With False, the old master stays as it is,
                for example frozen. Without a Sentinel, there are then two masters.

        Returns:
            The new master.

        Raises:
            RedisServerUnavailable: the replica was not the master by the deadline.
        """
        old, new = self.master, self.replica
        if kill:
            old.kill()
        if self.sentinel is None:
            new.call("REPLICAOF", "NO", "ONE")
            new.configure("replicaof", None)
        elif old.is_running and not old.is_frozen:
            self.sentinel.call("SENTINEL", "FAILOVER", SERVICE)
        self.master, self.replica = new, old
        self._wait(self._is_promoted, new, "was not promoted")
        return new

    def wait_replicated(self) -> None:
        """Wait until the replica has all of the master's data.

        If there is a Sentinel, also wait until it would promote the replica.

        Raises:
            RedisServerUnavailable: the replica was not in step by the deadline.
        """
        # For up to a second, the master sends nothing to a replica that has just copied the data.
        # A published message is replicated at once, as a write is, but changes no data.
        self.master.call("PUBLISH", SERVICE, "in step?")
        self._wait(self._in_step, self.replica, "has not all that its master has")

    def _wait(self, condition: Callable[[], bool], node: RedisNode, problem: str) -> None:
        def holds() -> bool:
            try:
                return condition()
            except RedisServerError:  # the server loads its data, or is not up yet
                return False

        timeout = self._deadline + (0.0 if self.sentinel is None else _SENTINEL_TILT_S)
        if not wait_until(holds, timeout):
            raise RedisServerUnavailable(
                f"after {timeout:g} s {node} {problem}; its log:\n{node.log_tail()}"
            )

    def _follows(self) -> bool:
        return self.replica.info("replication").get("master_link_status") == "up"

    def _in_step(self) -> bool:
        master = self.master.info("replication")
        offset = int(self.replica.info("replication")["slave_repl_offset"])
        has_all = offset >= int(master["master_repl_offset"])
        return has_all and self._follows() and self._is_known()

    def _is_promoted(self) -> bool:
        if self.master.info("replication")["role"] != "master":
            return False
        if self.sentinel is None:
            return True
        known = _named(self.sentinel.call("SENTINEL", "MASTER", SERVICE))
        # During the fail-over, Sentinel already names the new master, but with more flags.
        return (known["port"], known["flags"]) == (str(self.master.port), "master")

    def _is_known(self) -> bool:
        """Return whether the Sentinel would promote the replica."""
        if self.sentinel is None:
            return True
        known = map(_named, self.sentinel.call("SENTINEL", "REPLICAS", SERVICE))
        return [(each["flags"], each["master-link-status"]) for each in known] == [("slave", "ok")]


def _named(reply: Sequence[str]) -> dict[str, str]:
    return dict(zip(reply[::2], reply[1::2], strict=True))


@contextlib.contextmanager
def redis_pair(
    *,
    sentinel: bool = False,
    down_after_ms: int = 1000,
    appendonly: bool = True,
    appendfsync: str = "everysec",
    password: str | None = None,
    acl: tuple[str, ...] = (),
    extra_args: tuple[str, ...] = (),
    deadline: float = 30.0,
) -> Iterator[RedisPair]:
    """Run a Redis and its replica for as long as the `with` lasts.

    The replica is in step when the `with` begins. The data lie in a temporary folder.
    RINK_TEST_REDIS has no effect here.

    With `sentinel`, a Sentinel without a password watches both nodes, and promotes the replica when
    the master has not answered for `down_after_ms` milliseconds. See `local_redis` for the errors
    and the other arguments, which apply to each node. `deadline` also limits each wait of the pair.
    """
    settings = RedisSettings(
        appendonly=appendonly,
        appendfsync=appendfsync,
        password=password,
        acl=acl,
        extra_args=extra_args,
        deadline=deadline,
    )
    with redis_folder(2) as (folder, owner):
        link = secrets.token_hex(16)
        nodes = started_redises(2, folder, owner, settings, more=functools.partial(_linked, link))
        pair = RedisPair(nodes[0], nodes[1], None, deadline)
        pair.wait_replicated()
        if sentinel:
            pair.sentinel = _started_sentinel(
                folder, owner, _watching(link, pair.master, down_after_ms), deadline
            )
            pair.wait_replicated()
        yield pair


def _linked(link: str, ports: list[dict[str, int]], i: int) -> list[str]:
    return [
        f"user {_REPLICA_USER} on >{link} +psync +replconf +ping",
        f"user {_SENTINEL_USER} on >{link} &* +@all",
        f"masteruser {_REPLICA_USER}",
        f"masterauth {link}",
        "repl-diskless-sync-delay 0",  # otherwise the first copy waits 5 s for more replicas
        *([f"replicaof {HOST} {ports[0]['client']}"] if i else []),
    ]


def _started_sentinel(
    folder: Path, owner: ProcessOwner, watching: list[str], deadline: float
) -> RedisNode:
    # A Sentinel looks for replicas only every ten seconds, so start it when the nodes are in step.
    home = folder / "watch"  # its own folder, because the file of ports is per folder
    home.mkdir()

    def make() -> tuple[RedisNode]:
        (ports,) = kept_ports(home, ("client",), 1)
        conf = home / "sentinel" / "sentinel.conf"  # Sentinel keeps its own state in this file
        conf.parent.mkdir(exist_ok=True)
        lines = [f"bind {HOST}", f"port {ports['client']}", f"dir {quoted(str(conf.parent))}"]
        conf.write_text("\n".join([*lines, *watching]) + "\n")
        process = owner.process([str(conf), "--sentinel"], conf.with_name("redis.log"))
        url = redis_url(HOST, ports["client"])
        return (RedisNode("sentinel", url, process, deadline=deadline),)

    (node,) = started(home, make)
    return node


def _watching(link: str, master: RedisNode, down_after_ms: int) -> list[str]:
    return [
        f"sentinel monitor {SERVICE} {HOST} {master.port} 1",
        f"sentinel auth-user {SERVICE} {_SENTINEL_USER}",
        f"sentinel auth-pass {SERVICE} {link}",
        f"sentinel down-after-milliseconds {SERVICE} {down_after_ms}",
        # The maximum time of a fail-over. Sentinel waits twice as long before the next fail-over.
        f"sentinel failover-timeout {SERVICE} 3000",
    ]

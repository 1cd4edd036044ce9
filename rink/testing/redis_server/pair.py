"""A Redis and its replica: cut off from each other, failed over, and a Sentinel that does so by itself."""

from __future__ import annotations

import contextlib
import functools
import secrets
from typing import TYPE_CHECKING

from rink.testing.process.folders import started
from rink.testing.process.ports import free_ports, kept_ports
from rink.testing.process.server import wait_until
from rink.testing.redis_server.node import RedisNode
from rink.testing.redis_server.resp import Address, RedisServerError, RedisUnavailable, Reply
from rink.testing.redis_server.start import (
    HOST,
    RedisSettings,
    quoted,
    redis_folder,
    started_redises,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rink.testing.process.process import ProcessOwner

SERVICE = "rink"  # what Sentinel calls the pair
# Who a replica is to its master: switched off, the link is cut and all else goes on.
_REPLICA = "rink-replica"
_SENTINEL = "rink-sentinel"


class RedisPair:
    """A master and its replica, made by `redis_pair`.

    Attributes:
        master: the one that takes writes; after `failover` the other one.
        replica: the one that follows; after `failover` the old master, which follows only when it
            is told to by `heal`, or by the Sentinel.
        sentinel: who watches them, if asked for.
        service: what the Sentinel calls them.
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
        """Return where the Sentinel answers, if there is one."""
        return None if self.sentinel is None else self.sentinel.url

    def cut(self) -> None:
        """Cut replication: the replica keeps what it has, and is the older one from now on.

        Both serve; a Sentinel sees no failure. Lasts until `heal`, or until the master is restarted.

        Raises:
            RedisUnavailable: the replica still followed at the deadline.
        """
        self.master.call("ACL", "SETUSER", _REPLICA, "off")
        self.master.call("CLIENT", "KILL", "TYPE", "replica")
        self._wait(lambda: not self._follows(), self.replica, "still follows its master")

    def heal(self) -> None:
        """Make the replica follow the master after a cut or a fail-over.

        It is thawed, or started, if need be. What only the replica has is lost, as in production.
        Returns when it has all that the master has, and a Sentinel has noticed, which asks every
        ten seconds.

        Raises:
            RedisUnavailable: it had not by the deadline.
        """
        self.master.call("ACL", "SETUSER", _REPLICA, "on")
        _say_role(self.replica, self.master)
        self.replica.thaw()
        self.replica.start()
        self.replica.call("REPLICAOF", self.master.host, self.master.port)
        self.wait_replicated()

    def failover(self, *, kill: bool = True) -> RedisNode:
        """Put the replica, however old it is, in the master's place.

        With a Sentinel it is the Sentinel that does it: when it notices that the master is down, or
        at once where the master is neither killed nor frozen.

        Args:
            kill: end the old master (SIGKILL) first. Else it stays as it is, frozen for instance;
                without a Sentinel there are then two masters.

        Returns:
            The new master.

        Raises:
            RedisUnavailable: it was not the master by the deadline.
        """
        old, new = self.master, self.replica
        if kill:
            old.kill()
        if self.sentinel is None:
            new.call("REPLICAOF", "NO", "ONE")
            _say_role(new, None)
        elif old.is_running and not old.is_frozen:
            self.sentinel.call("SENTINEL", "FAILOVER", SERVICE)
        self.master, self.replica = new, old
        self._wait(self._is_promoted, new, "was not promoted")
        return new

    def wait_replicated(self) -> None:
        """Wait until the replica has all that the master has, and a Sentinel would promote it.

        Raises:
            RedisUnavailable: it had not by the deadline.
        """
        # A replica that has just copied the data is sent nothing new for up to a second: what is
        # published is sent as writes are, and changes nothing.
        self.master.call("PUBLISH", SERVICE, "in step?")
        self._wait(self._in_step, self.replica, "has not all that its master has")

    def _wait(self, look: Callable[[], bool], node: RedisNode, trouble: str) -> None:
        # A Sentinel that was kept from running for two seconds does nothing for as long as this.
        tilt_s = 0.0 if self.sentinel is None else 31.0
        if not wait_until(_unless_refused(look), self._deadline + tilt_s):
            raise RedisUnavailable(f"{node} {trouble}; its log:\n{node.log_tail()}")

    def _follows(self) -> bool:
        return self.replica.info("replication").get("master_link_status") == "up"

    def _in_step(self) -> bool:
        master = self.master.info("replication")
        has = int(self.replica.info("replication")["slave_repl_offset"])
        level = has >= int(master["master_repl_offset"])
        return level and self._follows() and self._is_known()

    def _is_promoted(self) -> bool:
        if self.master.info("replication")["role"] != "master":
            return False
        if self.sentinel is None:
            return True
        known = _named(self.sentinel.call("SENTINEL", "MASTER", SERVICE))
        # It names the new master already while it is still at it, with more flags.
        return (known["port"], known["flags"]) == (str(self.master.port), "master")

    def _is_known(self) -> bool:
        """The Sentinel, if there is one, would promote the replica."""
        if self.sentinel is None:
            return True
        known = map(_named, self.sentinel.call("SENTINEL", "REPLICAS", SERVICE))
        return [(each["flags"], each["master-link-status"]) for each in known] == [("slave", "ok")]


def _named(reply: Reply) -> dict[str, str]:
    """Return what Sentinel says of one server, by its names."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


def _unless_refused(look: Callable[[], bool]) -> Callable[[], bool]:
    def looked() -> bool:
        try:
            return look()
        except RedisServerError:  # it loads its data, or is not up yet
            return False

    return looked


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
    """Run a Redis and its replica for as long as the `with` lasts; they are in step when it begins.

    The other arguments and the errors are those of `local_redis`; a pair is never given, and its
    folder always a temporary one.

    Args:
        sentinel: have a Sentinel watch them, which promotes the replica when the master is down.
        down_after_ms: milliseconds without an answer until the Sentinel holds it to be down.
        appendonly: as of `local_redis`.
        appendfsync: as of `local_redis`.
        password: as of `local_redis`, the same for both; the Sentinel has none.
        acl: as of `local_redis`, the same for both.
        extra_args: as of `local_redis`, for both.
        deadline: as of `local_redis`, and for each of the pair's verbs.
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
        f"user {_REPLICA} on >{link} +psync +replconf +ping",
        f"user {_SENTINEL} on >{link} &* +@all",
        f"masteruser {_REPLICA}",
        f"masterauth {link}",
        "repl-diskless-sync-delay 0",  # else the first copy waits 5 s for further replicas
        *([f"replicaof {HOST} {ports[0]['client']}"] if i else []),
    ]


def _say_role(node: RedisNode, master: RedisNode | None) -> None:
    """Write into its configuration what it is when it is started again."""
    node.configure("replicaof", None if master is None else f"{master.host} {master.port}")


def _started_sentinel(
    folder: Path, owner: ProcessOwner, watching: list[str], deadline: float
) -> RedisNode:
    """A Sentinel, to be started when the two are in step: it looks for replicas every ten seconds only."""
    home = folder / "watch"  # a folder of its own, with its own port in it
    home.mkdir()

    def make() -> tuple[RedisNode]:
        (ports,) = kept_ports(home, ("client",), 1, free_ports)
        conf = home / "sentinel" / "sentinel.conf"  # which it writes what it learns into
        conf.parent.mkdir(exist_ok=True)
        lines = [f"bind {HOST}", f"port {ports['client']}", f"dir {quoted(str(conf.parent))}"]
        conf.write_text("\n".join([*lines, *watching]) + "\n")
        process = owner.process([str(conf), "--sentinel"], conf.with_name("redis.log"))
        return (RedisNode("sentinel", Address(HOST, ports["client"]), process, deadline=deadline),)

    (node,) = started(home, make)
    return node


def _watching(link: str, master: RedisNode, down_after_ms: int) -> list[str]:
    return [
        f"sentinel monitor {SERVICE} {HOST} {master.port} 1",
        f"sentinel auth-user {SERVICE} {_SENTINEL}",
        f"sentinel auth-pass {SERVICE} {link}",
        f"sentinel down-after-milliseconds {SERVICE} {down_after_ms}",
        # The longest that a fail-over may take; it waits twice as long until the next one.
        f"sentinel failover-timeout {SERVICE} 3000",
    ]

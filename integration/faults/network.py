"""A network of namespaces, in which packets are dropped: no refusal, no reset, only silence.

Every party (an etcd node, a member) has a network namespace of its own, with one link to a router, which is
a namespace too; the process of the tests is a party as well, by one more link. To part two of them the router gets
a policy rule that swallows what it would forward: no firewall is needed, only `ip` and the right to use it.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
from pathlib import Path

import attrs

NET = "198.18"  # set aside for tests of networks (RFC 2544), so that nobody's real network is meant
PREFIX = "rinkt"  # of namespaces and links


@attrs.frozen
class Party:
    """One end of the network.

    Attributes:
        address: where others reach it.
        command: what runs a process in it.
    """

    address: str
    command: tuple[str, ...]


class Network:
    """The router and all parties, until `close`."""

    def __init__(self) -> None:
        _sweep()
        self._name = f"{PREFIX}{os.getpid()}"
        self._router = f"{self._name}-r"
        self._subnet = random.choice([n for n in range(1, 250) if not _link_to(n).exists()])
        self._parties: list[str] = []
        self._links = 0
        _ip("netns", "add", self._router)
        try:
            _ip("netns", "exec", self._router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
            self.here = self._link(None)
        except BaseException:
            self.close()
            raise

    def add(self) -> Party:
        """A party in a namespace of its own."""
        name = f"{self._name}-{len(self._parties)}"
        _ip("netns", "add", name)
        self._parties.append(name)
        _ip("-n", name, "link", "set", "lo", "up")
        return Party(self._link(name), ("ip", "netns", "exec", name))

    def drop(self, source: Party, target: Party) -> None:
        """Deliver nothing from one to the other; the way back is another matter."""
        self._rule("add", "from", source.address, "to", target.address)

    def cut_off(self, party: Party, *, hears: bool = False, is_heard: bool = False) -> None:
        """Deliver nothing from a party, nor to it.

        Args:
            party: who is cut off.
            hears: it is still delivered to.
            is_heard: what it sends is still delivered.
        """
        if not is_heard:
            self._rule("add", "from", party.address)
        if not hears:
            self._rule("add", "to", party.address)

    def heal(self) -> None:
        """Deliver everything again."""
        while self._rule("del", check=False):
            pass

    def close(self) -> None:
        """Remove all of it; what runs there has ended."""
        # The link to here first: those of a namespace go a moment after it.
        _ip("link", "del", f"{PREFIX}{self._subnet}p0", check=False)
        for name in (*self._parties, self._router):
            _ip("netns", "del", name, check=False)

    def _link(self, namespace: str | None) -> str:
        """Lay a link from the router to a namespace, None is ours; the address of that end."""
        number, self._links = self._links, self._links + 1
        near, far = (f"{PREFIX}{self._subnet}{side}{number}" for side in "rp")
        gateway, address = (f"{NET}.{self._subnet}.{4 * number + host}" for host in (1, 2))
        at = ("-n", namespace) if namespace else ()
        _ip("-n", self._router, "link", "add", near, "type", "veth", "peer", "name", far)
        place = namespace or str(os.getpid())
        _ip("-n", self._router, "link", "set", far, "netns", place)
        _ip("-n", self._router, "addr", "add", f"{gateway}/30", "dev", near)
        _ip("-n", self._router, "link", "set", near, "up")
        _ip(*at, "addr", "add", f"{address}/30", "dev", far)
        _ip(*at, "link", "set", far, "up")
        _ip(*at, "route", "add", f"{NET}.{self._subnet}.0/24", "via", gateway)
        return address

    def _rule(self, do: str, *which: str, check: bool = True) -> bool:
        kind = ("blackhole",) if do == "add" else ()
        return _ip("-n", self._router, "rule", do, "priority", "100", *which, *kind, check=check)


def refusal() -> str | None:
    """Why there can be no such network here; None where there can."""
    try:
        with contextlib.closing(Network()) as network:
            network.cut_off(network.add())
    except (OSError, RuntimeError) as error:
        return f"no network namespaces here ({error})"
    return None


def _link_to(subnet: int) -> Path:
    return Path(f"/sys/class/net/{PREFIX}{subnet}p0")


def _sweep() -> None:
    """Remove what a killed run has left."""
    for path in Path("/run/netns").glob(f"{PREFIX}*-*"):
        owner = path.name.removeprefix(PREFIX).partition("-")[0]
        if not Path(f"/proc/{owner}").exists():
            _ip("netns", "del", path.name, check=False)


def _ip(*arguments: str, check: bool = True) -> bool:
    done = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
    if check and done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.returncode == 0

"""Build a network of namespaces in which packets can be dropped.

The sender sees no refusal and no reset, only silence.

Every party (an etcd node, a member) has a network namespace of its own, with one link to a router,
which is a namespace too. The process of the tests is a party as well, by one more link. To part two
of them, the router gets a policy rule that swallows what it would forward. No firewall is needed,
only `ip` and the right to use it.

A `Branch` is a further subnet at the same router. Another process can add parties to it, such as a
node of Kubernetes its pods.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import socket
import subprocess
from pathlib import Path

import attrs

NET = "198.18"  # reserved for tests of networks (RFC 2544), so it is no real network
PREFIX = "rinkt"  # of namespaces and links


@attrs.frozen
class Party:
    """Hold one end of the network.

    Attributes:
        address: where others reach it.
        command: the command that runs a process in it.
    """

    address: str
    command: tuple[str, ...]


@attrs.frozen
class Branch:
    """Name a subnet of a network, for a process that adds parties to it.

    Attributes:
        router: the router's namespace.
        subnet: the third number of its addresses.
    """

    router: str
    subnet: int

    def add(self, number: int) -> Party:
        """Return a party in a namespace of its own.

        Args:
            number: below 63; no two parties that exist at once have the same one.
        """
        name = self._name(number)
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")
        address = lay_link(self.router, self.subnet, number, name)
        return Party(address, ("ip", "netns", "exec", name))

    def remove(self, number: int) -> None:
        """Remove a party. All processes in it have ended."""
        ip("netns", "del", self._name(number), check=False)
        # The other end of its link goes a moment after it, and its name is needed again.
        ip("-n", self.router, "link", "del", f"{PREFIX}{self.subnet}r{number}", check=False)

    def clear(self) -> None:
        """Remove the parties that an earlier process has left here."""
        for path in Path("/run/netns").glob(f"{self.router}{self.subnet}-*"):
            self.remove(int(path.name.rpartition("-")[2]))

    def _name(self, number: int) -> str:
        return f"{self.router}{self.subnet}-{number}"


class Subnet:
    """Reserve a subnet that no other network of this machine has.

    It is not enough that no route leads there: two processes that look at once may choose the same
    subnet. So its owner holds an abstract socket with its number, until `close`. The socket ends
    with the process, and is seen in the same network namespace as the routes.

    Attributes:
        number: the third number of its addresses.
    """

    def __init__(self) -> None:
        for number in _subnets_without_route():
            self._mark = socket.socket(socket.AF_UNIX)
            try:
                self._mark.bind(f"\0rink-test-subnet-{number}")
            except OSError as error:
                self._mark.close()
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                self.number = number
                return
        raise RuntimeError(f"all subnets of {NET}.0.0/16 are taken")

    def close(self) -> None:
        """Give it back. No route leads there any more."""
        self._mark.close()


class Network:
    """Hold the router and all parties, until `close`."""

    def __init__(self) -> None:
        _sweep()
        self._name = f"{PREFIX}{os.getpid()}"
        self._router = f"{self._name}-r"
        self._parties: list[str] = []
        self._subnets: list[Subnet] = []
        self._links = 0
        ip("netns", "add", self._router)
        try:
            self._subnet = self._take_subnet()
            ip("netns", "exec", self._router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
            self.here = self._link(None)
        except BaseException:
            self.close()
            raise

    def add(self) -> Party:
        """Add a party in a namespace of its own."""
        name = f"{self._name}-{len(self._parties)}"
        ip("netns", "add", name)
        self._parties.append(name)
        ip("-n", name, "link", "set", "lo", "up")
        return Party(self._link(name), ("ip", "netns", "exec", name))

    def branch(self) -> Branch:
        """Return a further subnet, which the parties and this process reach."""
        subnet = self._take_subnet()
        ip("route", "add", f"{NET}.{subnet}.0/24", "via", f"{NET}.{self._subnet}.1")
        return Branch(self._router, subnet)

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
        for subnet in self._subnets[:1]:
            ip("link", "del", f"{PREFIX}{subnet.number}p0", check=False)
        branches = [path.name for path in Path("/run/netns").glob(f"{self._router}?*")]
        for name in (*branches, *self._parties, self._router):
            ip("netns", "del", name, check=False)
        for subnet in self._subnets:
            subnet.close()

    def _take_subnet(self) -> int:
        self._subnets.append(Subnet())
        return self._subnets[-1].number

    def _link(self, namespace: str | None) -> str:
        """Lay a link from the router to a namespace; return its address.

        None is our own namespace.
        """
        number, self._links = self._links, self._links + 1
        return lay_link(self._router, self._subnet, number, namespace)

    def _rule(self, do: str, *which: str, check: bool = True) -> bool:
        kind = ("blackhole",) if do == "add" else ()
        return ip("-n", self._router, "rule", do, "priority", "100", *which, *kind, check=check)


def lay_link(router: str, subnet: int, number: int, namespace: str | None) -> str:
    """Lay a link from a router to a namespace; return its address.

    None is our own namespace.
    """
    near, far = (f"{PREFIX}{subnet}{side}{number}" for side in "rp")
    gateway, address = (f"{NET}.{subnet}.{4 * number + host}" for host in (1, 2))
    at = ("-n", namespace) if namespace else ()
    # Parties of other subnets are reached by the same router; from here each needs a route.
    reached = f"{NET}.0.0/16" if namespace else f"{NET}.{subnet}.0/24"
    ip("-n", router, "link", "add", near, "type", "veth", "peer", "name", far)
    ip("-n", router, "link", "set", far, "netns", namespace or str(os.getpid()))
    ip("-n", router, "addr", "add", f"{gateway}/30", "dev", near)
    ip("-n", router, "link", "set", near, "up")
    ip(*at, "addr", "add", f"{address}/30", "dev", far)
    ip(*at, "link", "set", far, "up")
    ip(*at, "route", "add", reached, "via", gateway)
    return address


def refusal() -> str | None:
    """Return why there can be no such network here, or None."""
    try:
        with contextlib.closing(Network()) as network:
            network.cut_off(network.add())
    except (OSError, RuntimeError) as error:
        return f"no network namespaces here ({error})"
    return None


def _subnets_without_route() -> list[int]:
    """Return the subnets to which no route leads, in any order.

    A killed run of the tests leaves routes, and no mark.
    """
    done = subprocess.run(["ip", "-o", "route"], check=True, capture_output=True, text=True)
    routes = [line for line in done.stdout.splitlines() if line.startswith(f"{NET}.")]
    taken = {int(line.split(".")[2]) for line in routes}
    free = sorted(set(range(1, 250)) - taken)
    return random.sample(free, len(free))


def _sweep() -> None:
    """Remove what a killed run has left."""
    for path in Path("/run/netns").glob(f"{PREFIX}*-*"):
        owner = path.name.removeprefix(PREFIX).partition("-")[0]
        if not Path(f"/proc/{owner}").exists():
            ip("netns", "del", path.name, check=False)


def ip(*arguments: str, check: bool = True) -> bool:
    """Run the command `ip`; return whether it succeeded.

    With `check`, raise if it failed.
    """
    done = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
    if check and done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.returncode == 0

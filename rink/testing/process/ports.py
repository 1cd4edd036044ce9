"""Which ports test servers listen on: below those of outgoing connections, one run's own, kept with the data."""

from __future__ import annotations

import atexit
import contextlib
import errno
import json
import os
import random
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from rink.errors import ConfigError, RinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PORTS_FILE = "rink-ports.json"


def kept_ports(
    folder: Path, names: Sequence[str], size: int, choose: Callable[[int], list[int]]
) -> list[dict[str, int]]:
    """The ports of each of `size` servers by their names: those kept in the folder, or chosen now.

    Raises:
        ConfigError: the folder holds another number of servers.
    """
    file = folder / PORTS_FILE
    if file.exists():
        ports: list[dict[str, int]] = json.loads(file.read_text())
        if len(ports) != size:
            raise ConfigError(f"{folder} holds a cluster of {len(ports)}, not of {size}")
        return ports
    free = iter(choose(len(names) * size))
    ports = [{name: next(free) for name in names} for _ in range(size)]
    file.write_text(json.dumps(ports))
    return ports


def free_ports(count: int) -> list[int]:
    """Different loopback ports that are free now, and are given to nobody else while this process lives.

    They lie below the range from which the kernel takes ports for outgoing connections. From
    within it, a client that keeps trying to reach a killed node would sooner or later be given the
    node's own port and connect to itself, and the node could not be started again. Nor may another
    run of tests be given it meanwhile: members would be led from one cluster to the other.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = _given.next()
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                ports.append(port)
    return ports


class _Given:
    """Ports in blocks, each of which one process has for as long as it lives.

    Whoever has a block holds an abstract socket with its number, which ends with the process and is
    seen in the same network namespace as the ports. Systems that have none get a block by chance.
    """

    BLOCK = 100

    def __init__(self) -> None:
        self._left: list[int] = []
        self._owner = 0

    def next(self) -> int:
        """The next port; in a forked child, of a block of its own."""
        if not self._left or self._owner != os.getpid():
            self._owner, self._left = os.getpid(), self._take_block()
        return self._left.pop()

    def _take_block(self) -> list[int]:
        numbers = list(range(10_000, _first_outgoing_port() - self.BLOCK, self.BLOCK))
        random.shuffle(numbers)
        for first in numbers:
            mark = socket.socket(socket.AF_UNIX)
            try:
                mark.bind(f"\0rink-test-ports-{first}")
            except OSError as error:
                mark.close()
                if error.errno == errno.EADDRINUSE:
                    continue
            else:
                atexit.register(mark.close)  # and until then it is kept
            return random.sample(range(first, first + self.BLOCK), self.BLOCK)
        raise RinkError("no ports are left for test servers: too many runs at once on this machine")


_given = _Given()


def _first_outgoing_port() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        return 32_768
    return first if first > 12_000 else 65_536  # a range that starts low leaves us no choice

"""Choose ports for test servers, and keep them with the servers' data."""

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
    from collections.abc import Sequence

PORTS_FILE = "rink-ports.json"
_BLOCK = 100


def kept_ports(folder: Path, names: Sequence[str], size: int) -> list[dict[str, int]]:
    """Return the ports of each of `size` servers by name.

    The ports are read from the folder's file, or chosen and written to it.

    Raises:
        ConfigError: the folder holds another number of servers.
    """
    file = folder / PORTS_FILE
    if file.exists():
        ports: list[dict[str, int]] = json.loads(file.read_text())
        if len(ports) != size:
            raise ConfigError(
                f"data_dir {folder} holds a cluster of size {len(ports)}, not {size}: use "
                "another folder, or that size"
            )
        return ports
    free = iter(free_ports(len(names) * size))
    ports = [{name: next(free) for name in names} for _ in range(size)]
    file.write_text(json.dumps(ports))
    return ports


def free_ports(count: int) -> list[int]:
    """Return different loopback ports that are free now.

    No other test run gets these ports while this process lives. Otherwise members could reach the
    wrong cluster. The ports lie below the range of outgoing connections. In that range, a client
    that keeps connecting to a killed server could take the server's port.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = _next_port()
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                ports.append(port)
    return ports


_left: dict[int, list[int]] = {}
"""The unused ports of a process's block, by process id. A forked child reserves its own block."""


def _next_port() -> int:
    left = _left.setdefault(os.getpid(), [])
    if not left:
        left += _reserved_block()
    return left.pop()


def _reserved_block() -> list[int]:
    """Reserve a block of ports for this process.

    An abstract socket with the block's number reserves a block. It ends with the process, and
    belongs to the same network namespace as the ports. Systems without abstract sockets take a
    random block.
    """
    numbers = list(range(10_000, _first_outgoing_port() - _BLOCK, _BLOCK))
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
            atexit.register(mark.close)  # the reference keeps the socket open until then
        return random.sample(range(first, first + _BLOCK), _BLOCK)
    raise RinkError(
        "no free block of ports for test servers: too many test runs at once on this machine"
    )


def _first_outgoing_port() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        return 32_768
    return first if first > 12_000 else 65_536  # below a low range there are too few ports

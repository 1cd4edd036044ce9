"""Make the folders of test servers, and start the servers in them."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rink.errors import RinkError
from rink.testing.process.ports import PORTS_FILE
from rink.testing.process.server import ServerNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rink.testing.process.process import ProcessOwner

log = logging.getLogger(__name__)

_ATTEMPTS = 5
_Node = TypeVar("_Node", bound=ServerNode)


@contextlib.contextmanager
def owned_folder(
    owner_of: Callable[[list[Path]], ProcessOwner], data_dir: Path | None, *, prefix: str, room: int
) -> Iterator[tuple[Path, ProcessOwner]]:
    """Give a folder for servers and the owner of their processes.

    When the `with` ends, the servers end, and a temporary folder is removed.

    Args:
        owner_of: makes the owner from the folders that it must remove at the end.
        data_dir: a folder that stays; None makes a temporary one.
        prefix: the prefix of the temporary folder's name.
        room: the number of bytes that the servers need.
    """
    folder = data_dir or _temporary_folder(prefix, room)
    folder.mkdir(parents=True, exist_ok=True)
    owner = owner_of([] if data_dir else [folder])
    try:
        yield folder, owner
    finally:
        owner.close()


def started(folder: Path, make: Callable[[], tuple[_Node, ...]]) -> tuple[_Node, ...]:
    """Start servers, and return them when they are healthy.

    Args:
        folder: the folder of the ports file and of each server's own data folder.
        make: makes the servers without starting them, on the ports in the file or on new ports.

    Raises:
        EtcdUnavailable: a server was not healthy by its deadline; for a Redis,
            RedisServerUnavailable.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        recorded = (folder / PORTS_FILE).exists()
        nodes = make()
        try:
            for node in nodes:
                node.start(wait=False)
            for node in nodes:
                node.wait_healthy()
        except RinkError:
            # Another process may have taken a port before the server listened on it. Then choose
            # new ports, but not for existing data, whose peers know the old ports.
            taken = any("address already in use" in node.log_tail().lower() for node in nodes)
            if not taken or recorded or attempt == _ATTEMPTS:
                raise
            log.info("another process took a port of a test server, retrying with other ports")
            for node in nodes:
                node.kill()
                shutil.rmtree(folder / node.name)
            (folder / PORTS_FILE).unlink()
        else:
            return nodes
    raise AssertionError("the last attempt returns or raises")


def _temporary_folder(prefix: str, room: int) -> Path:
    # Servers wait for fsync, which takes some 10 ms on a disk and no time in memory. A container's
    # /dev/shm often has only 64 MB, which is too little for one etcd.
    shm = Path("/dev/shm")
    has_room = shm.is_dir() and os.access(shm, os.W_OK) and shutil.disk_usage(shm).free > room
    return Path(tempfile.mkdtemp(prefix=prefix, dir=shm if has_room else None))

"""Where the data of test servers lies, and how they are brought up in it, whatever they serve."""

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
    """A folder for servers and who owns them; when the `with` ends both are gone.

    Args:
        owner_of: makes the owner, given the folders to remove at the end.
        data_dir: a folder that stays; None is a temporary one.
        prefix: what the temporary one's name begins with.
        room: bytes that the servers need.
    """
    folder = data_dir or _temporary_folder(prefix, room)
    folder.mkdir(parents=True, exist_ok=True)
    owner = owner_of([] if data_dir else [folder])
    try:
        yield folder, owner
    finally:
        owner.close()


def started(folder: Path, make: Callable[[], tuple[_Node, ...]]) -> tuple[_Node, ...]:
    """Servers that are healthy.

    Args:
        folder: where their ports are kept, and their data in a folder of each one's name.
        make: makes them, not started, on the ports kept or on new ones.

    Raises:
        EtcdUnavailable: one was not healthy by its deadline; of a Redis, RedisUnavailable.
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
            # Somebody may take a port between our choosing it and the server's listening there:
            # choose anew. Data that was there before is bound to its ports (peers know them), and
            # ours to keep.
            taken = any("address already in use" in node.log_tail().lower() for node in nodes)
            if not taken or recorded or attempt == _ATTEMPTS:
                raise
            log.info("a port chosen for a test server was taken meanwhile, choosing others")
            for node in nodes:
                node.kill()
                shutil.rmtree(folder / node.name)
            (folder / PORTS_FILE).unlink()
        else:
            return nodes
    raise AssertionError("the last attempt returns or raises")


def _temporary_folder(prefix: str, room: int) -> Path:
    # A server waits for fsync on its writes: some 10 ms on a disk, nothing in memory. A container's
    # /dev/shm often has 64 MB only, which is too little even for one etcd.
    shm = Path("/dev/shm")
    roomy = shm.is_dir() and os.access(shm, os.W_OK) and shutil.disk_usage(shm).free > room
    return Path(tempfile.mkdtemp(prefix=prefix, dir=shm if roomy else None))

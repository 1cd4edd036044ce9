"""Run a ZooKeeper of the bench's own.

It has Debian's jars, a free port, and its data in memory.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

from peers.common import NotToBeHadError
from rink.testing.process.ports import free_ports
from rink.testing.process.process import ServerReaper

JAR = Path("/usr/share/java/zookeeper.jar")
TICK_MS = 500  # a session may then be as short as one second


@attrs.frozen
class ZooKeeper:
    """Hold a running ZooKeeper."""

    port: int
    version: str

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    def counts(self) -> tuple[int, int]:
        """Return the transactions and the packets received so far.

        The packets include the pings of sessions.
        """
        said = dict(
            line.split("\t", 1) for line in ask(self.port, "mntr").splitlines() if "\t" in line
        )
        zxid = next(x for x in ask(self.port, "srvr").splitlines() if x.startswith("Zxid"))
        return int(zxid.split()[1], 16), int(float(said["zk_packets_received"]))


def ask(port: int, word: str) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(word.encode())
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts).decode()


@contextlib.contextmanager
def running() -> Iterator[ZooKeeper]:
    """Run one for as long as the `with` lasts; nothing of it stays behind.

    Raises:
        NotToBeHadError: there is no Java, or no ZooKeeper of Debian's.
    """
    java = shutil.which("java")
    if java is None or not JAR.exists():
        raise NotToBeHadError(f"no {'java' if java is None else JAR}: apt install zookeeper")
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="bench-zk-", dir=memory if memory.is_dir() else None))
    (port,) = free_ports(1)
    settings = {
        "dataDir": folder / "data",
        "clientPort": port,
        "clientPortAddress": "127.0.0.1",
        "tickTime": TICK_MS,
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "srvr,mntr,ruok",
    }
    config = folder / "zoo.cfg"
    config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    guard = ServerReaper(Path(java), [folder])
    server = "org.apache.zookeeper.server.ZooKeeperServerMain"
    arguments = ["-Xmx512m", "-cp", f"{JAR}:/usr/share/java/slf4j-nop.jar", server, str(config)]
    process = guard.process(arguments, folder / "log")
    try:
        process.start()
        _wait(port, process)
        version = ask(port, "srvr").split("version: ")[1].split("-")[0]
        yield ZooKeeper(port, version)
    finally:
        guard.close()


def _wait(port: int, process) -> None:
    end = time.monotonic() + 30
    while True:
        with contextlib.suppress(OSError):
            if "Zookeeper version" in ask(port, "srvr"):  # it says something else until it serves
                return
        if time.monotonic() > end or not process.is_running():
            raise RuntimeError(f"ZooKeeper did not start:\n{process.log()[-2000:]}")
        time.sleep(0.1)

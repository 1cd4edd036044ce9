"""Run a control plane of Kubernetes, and nodes beside it.

    with running_cluster() as cluster:
        node = cluster.node("one", start_delay=(1.0, 2.0))
        cluster.api.create(at("deployments", "default"), {...})

The apiserver and the controllers are the real ones, on free loopback ports; see `kube_build`. All
data is in a temporary folder. Whatever happens to this process, nothing stays behind: all servers
are children of a guard (`rink.testing.process.reaper`), which ends them when this process is gone.

There is no scheduler. `bind_pods` gives each pod to the node with the fewest pods of its namespace.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import httpx
import trustme
from kube_api import Access, Api, ApiError, at
from kube_build import Built, built
from kubenode.agent import Settings
from network import Network, Party, refusal
from processes import is_alive

from rink.errors import RinkError
from rink.testing import EtcdNode, Place, etcd_cluster
from rink.testing.process.ports import free_ports
from rink.testing.process.process import ReapedProcess, ServerReaper

LOOK_INTERVAL_S = 0.2
START_TIMEOUT_S = 90.0
NODE_SCRIPT = Path(__file__).with_name("kube_node.py")


class NodeProcess:
    """Hold a running node of `kubenode`.

    Attributes:
        settings: what it was started with.
    """

    def __init__(self, settings: Settings, process: ReapedProcess) -> None:
        self.settings = settings
        self._process = process

    @property
    def journal(self) -> Path:
        """Return the file of what it did to containers."""
        return self.settings.folder / "journal.jsonl"

    @property
    def pid(self) -> int:
        """Return its process id."""
        assert self._process.pid is not None
        return self._process.pid

    def start(self) -> None:
        """Start it. It takes up the pods that are bound to it and not ending."""
        self._process.start()

    def stop(self) -> None:
        """End it, and so its containers, if there are any left."""
        self._process.signal(signal.SIGKILL)
        wait_for(lambda: not self._process.is_running(), 10, "the node's end")

    def kill(self) -> float:
        """Kill it with all its processes, as a machine that loses its power.

        Return the time of CLOCK_BOOTTIME at which all of them were dead.
        """
        processes = descendants(self.pid)
        self._process.signal(signal.SIGKILL)
        for pid in processes:  # the kernel kills its children (PDEATHSIG), not theirs
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not self._process.is_running(), 10, "the node's end")
        wait_for(lambda: not any(is_alive(pid) for pid in processes), 10, "its processes' end")
        return time.clock_gettime(time.CLOCK_BOOTTIME)


@attrs.frozen
class Cluster:
    """Hold a running control plane.

    Attributes:
        api: a client of it.
        access: how others reach it.
        folder: temporary; of all data and logs.
        binaries: the built programs.
        network: of the pods; None if they have the host's.
        why_no_network: the reason for that, in words.
    """

    api: Api
    access: Access
    folder: Path
    binaries: Built
    network: Network | None
    why_no_network: str | None
    _guard: ServerReaper
    _opened: contextlib.ExitStack
    _done: threading.Event

    def node(
        self,
        name: str,
        *,
        start_delay: tuple[float, float] = (0.0, 0.0),
        seed: int = 0,
        backoff_factor: float = 1.0,
        image_env: dict[str, str] | None = None,
    ) -> NodeProcess:
        """Start a node, and return it when it is registered.

        The arguments are those of `Settings`.
        """
        settings = Settings(
            name=name,
            access=self.access,
            folder=self.folder / "nodes" / name,
            branch=self.network.branch() if self.network else None,
            host_ip=self.network.here if self.network else "127.0.0.1",
            start_delay=start_delay,
            seed=seed,
            backoff_factor=backoff_factor,
            image_env=image_env or {},
        )
        settings.folder.mkdir(parents=True)
        command = [sys.executable, str(NODE_SCRIPT), settings.as_json()]
        process = ReapedProcess(self._guard, command, settings.folder / "node.log")
        node = NodeProcess(settings, process)
        node.start()
        wait_for(lambda: self._is_registered(name, process), 30, f"node {name}: {process.log_path}")
        return node

    def _is_registered(self, name: str, process: ReapedProcess) -> bool:
        if not process.is_running():
            raise RuntimeError(f"node {name} ended: {process.log()[-2000:]}")
        try:
            self.api.get(at("nodes", name=name))
        except ApiError:
            return False
        return True

    def etcd(self) -> EtcdNode:
        """Return an etcd for programs in pods, apart from the control plane's."""
        place = Place()
        if self.network is not None:
            party: Party = self.network.add()
            place = Place(party.address, party.command)
        opened = etcd_cluster(1, places=(place,), fsync=False)
        return self._opened.enter_context(opened).nodes[0]

    def bind_pods(self, namespace: str, nodes: list[str]) -> None:
        """Bind the pods of a namespace to the node with the fewest of them.

        Later pods are bound, too.
        """
        binder = Binder(self.api, namespace, nodes, self._done)
        threading.Thread(target=binder.run, name=f"binder of {namespace}", daemon=True).start()


class Binder:
    """Bind pods to nodes, in the place of a scheduler."""

    def __init__(self, api: Api, namespace: str, nodes: list[str], done: threading.Event) -> None:
        self._api = api
        self._pods = at("pods", namespace)
        self._nodes = nodes
        self._done = done
        self._bound: dict[str, str] = {}

    def run(self) -> None:
        """Bind until the cluster ends; a watch that breaks begins anew."""
        while not self._done.wait(LOOK_INTERVAL_S):
            # RuntimeError: the client was closed, or the apiserver refused a list that is too old.
            with contextlib.suppress(httpx.HTTPError, RuntimeError):
                listed = self._api.get(self._pods)
                for pod in listed["items"]:
                    self._take("ADDED", pod)
                for event in self._api.watch(self._pods, listed["metadata"]["resourceVersion"]):
                    if event["type"] == "ERROR":
                        break
                    self._take(event["type"], event["object"])

    def _take(self, kind: str, pod: dict) -> None:
        if kind == "DELETED":
            self._bound.pop(pod["metadata"]["uid"], None)
        elif kind == "ADDED":
            uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
            if node is None:
                counts = Counter(self._bound.values())
                node = min(self._nodes, key=lambda name: counts[name])
                self._bind(pod["metadata"]["name"], node)
            self._bound[uid] = node

    def _bind(self, name: str, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        try:
            self._api.create(f"{self._pods}/{name}/binding", body)
        except ApiError as error:
            if error.code not in {404, 409}:  # gone or bound meanwhile
                raise


@contextlib.contextmanager
def running_cluster(show: Callable[[str], None] = print) -> Iterator[Cluster]:
    """Run a control plane until the `with` ends.

    Args:
        show: called with lines about the progress.

    Raises:
        NoControlPlaneError: there is none, and it cannot be built here.
    """
    binaries = built(show=show)
    with contextlib.ExitStack() as opened:
        opened_folder = tempfile.TemporaryDirectory(prefix="rink-kube-", ignore_cleanup_errors=True)
        folder = Path(opened.enter_context(opened_folder))
        why_not = refusal()
        network = None if why_not else opened.enter_context(contextlib.closing(Network()))
        own_etcd = opened.enter_context(etcd_cluster(1, fsync=False)).nodes[0]
        guard = ServerReaper(binaries.controlplane, [folder], error=RinkError)
        opened.callback(guard.close)
        access = start_apiserver(guard, folder, own_etcd.endpoint)
        api = Api(access)
        opened.callback(api.close)
        start_controllers(guard, folder, access)
        done = threading.Event()
        opened.callback(done.set)
        yield Cluster(api, access, folder, binaries, network, why_not, guard, opened, done)


def start_apiserver(guard: ServerReaper, folder: Path, etcd: str) -> Access:
    """Start the apiserver, and return how to reach it when it is ready."""
    (port,) = free_ports(1)
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    paths = {name: folder / name for name in ("ca.pem", "cert.pem", "key.pem", "tokens.csv")}
    authority.cert_pem.write_to_path(paths["ca.pem"])
    certificate.private_key_pem.write_to_path(paths["key.pem"])
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(paths["cert.pem"], append=True)
    access = Access(f"https://127.0.0.1:{port}", secrets.token_hex(16), str(paths["ca.pem"]))
    paths["tokens.csv"].write_text(f'{access.token},admin,admin,"system:masters"\n')
    arguments = [
        "apiserver",
        f"--etcd-servers={etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={paths['cert.pem']}",
        f"--tls-private-key-file={paths['key.pem']}",
        f"--token-auth-file={paths['tokens.csv']}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={paths['key.pem']}",
        f"--service-account-signing-key-file={paths['key.pem']}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none",
        "--disable-admission-plugins=ServiceAccount",  # no controller makes accounts here
        "--profiling=false",
    ]
    process = guard.process(arguments, folder / "apiserver.log")
    process.start()
    with httpx.Client(**access.options()) as client:

        def is_ready() -> bool:
            if not process.is_running():
                raise RuntimeError(f"the apiserver ended:\n{process.log()[-3000:]}")
            with contextlib.suppress(httpx.HTTPError):
                return client.get("/readyz").text == "ok"
            return False

        wait_for(is_ready, START_TIMEOUT_S, "the apiserver")
    return access


def start_controllers(guard: ServerReaper, folder: Path, access: Access) -> None:
    """Start the controllers, and return when they run."""
    config = access.kubeconfig(folder / "kubeconfig")
    process = guard.process(["controllers", str(config)], folder / "controllers.log")
    process.start()

    def is_up() -> bool:
        if not process.is_running():
            raise RuntimeError(f"the controllers ended:\n{process.log()[-3000:]}")
        return "controllers run" in process.log()

    wait_for(is_up, START_TIMEOUT_S, "the controllers")


def wait_for(is_so: Callable[[], bool], timeout: float, what: str) -> None:
    """Look now and then until something is so.

    Raises:
        TimeoutError: it was not within `timeout` seconds.
    """
    end = time.monotonic() + timeout
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {timeout:g} s: {what}")
        time.sleep(LOOK_INTERVAL_S)


def descendants(pid: int) -> list[int]:
    """Return the ids of all processes below one."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.parent.name))
    below = list(children.get(pid, []))
    for child in below:
        below.extend(children.get(child, []))
    return below

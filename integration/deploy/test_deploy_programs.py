"""Run the programs of the bases as their manifests say.

They get the commands and the environment of the manifests. The root file system is read-only, as in
the pods, if this machine permits mount namespaces.
"""

import inspect
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from cli_lines import DEADLINE_S, Lines
from manifests import ROOT, pods_of
from network import Network, refusal

import rink
from rink.testing import Place, etcd_cluster

pytestmark = pytest.mark.waits

READ_ONLY = ("unshare", "--mount", "sh", "-c", 'mount -o bind,remount,ro / && exec "$@"', "sh")
SHORTER = {"RINK_HANDOVER_WAIT": "1"}  # no pod waits for the leaver's roles
DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")


@pytest.fixture(scope="module")
def network():
    missing = refusal()
    if missing:
        pytest.skip(missing)
    made = Network()
    yield made
    made.close()


class Pod:
    """Run a pod's one container as a process.

    Args:
        base: a folder of deploy/.
        folder: for its program.
        name: of the pod.
        before: the command that enters the pod's network namespace.
        changed: replacements for words of its command.
        env: replacements in the manifest's environment.
    """

    def __init__(self, base, folder, name, *, before=(), changed=None, **env):
        (pods,) = [one for one in pods_of(ROOT / "deploy" / base) if one.containers]
        (container,) = pods.containers
        fields = {"POD_NAME": name, "POD_REVISION": "5d9f7"}
        set_here = {
            one["name"]: fields.get(one["name"], one.get("value")) for one in container["env"]
        }
        for file, source in pods.programs(container).items():
            (folder / file).write_text(source)
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        words = []
        for word in container["command"]:
            here = (changed or {}).get(word, [self._word(word, name, mounts, folder)])
            words.extend(here)
        self.container = container
        self.lines = Lines(
            [*DIES_WITH_US, *before, *READ_ONLY, *words],
            folder,
            of="stderr",
            PYTHONPATH=":".join(filter(None, [str(ROOT), *sys.path])),
            PYTHONUNBUFFERED="1",
            PYTHONDONTWRITEBYTECODE="1",
            **{**set_here, **env},
        )

    def _word(self, word, name, mounts, folder):
        word = word.replace("$(POD_NAME)", name)
        for path in mounts:
            if word.startswith(f"{path}/"):
                word = word.replace(path, str(folder), 1)
        return {"python": sys.executable}.get(word, word)

    def until(self, pattern):
        """Read lines until one has the pattern; return all lines so far."""
        while not any(re.search(pattern, line) for line in self.lines.read):
            assert self.lines.process.poll() is None, "".join(self.lines.read)
            self.lines.next()
        return "".join(self.lines.read)


def status(url):
    """Return the HTTP status, or None while nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
    except OSError:  # a URLError, or a TimeoutError amid the answer
        return None


def eventually(url, code):
    deadline = time.monotonic() + DEADLINE_S
    while status(url) != code:
        assert time.monotonic() < deadline, f"{url} does not answer {code}"
        time.sleep(0.1)


@pytest.mark.skipif(
    "handover_wait" not in inspect.signature(rink.Rink).parameters,
    reason="the program sets handover_wait, which Rink does not have yet",
)
@pytest.mark.parametrize("base", ["deployment", "statefulset"])
def test_program_shares_roles_is_ready_and_leaves_at_sigterm(base, network, tmp_path):
    server = network.add()
    with etcd_cluster(1, places=(Place(server.address, server.command),), fsync=False) as cluster:
        endpoint = cluster.nodes[0].endpoint
        pods = []
        try:
            for name in ("one", "two"):
                party = network.add()
                env = {"RINK_ETCD": endpoint, **SHORTER}
                pods.append(Pod(base, tmp_path, name, before=party.command, **env))
                # If the second one founded the group, the first one would wait a minute for a rank.
                eventually(f"http://{party.address}:8080/readyz", 200)
            first = pods[0].until("polling bank-")
            assert "joined as 'one'" in first
            command = [sys.executable, "-m", "rink.cli", "status", "--endpoints", endpoint]
            group = next(one for one in pods[0].container["env"] if one["name"] == "RINK_GROUP")
            told = subprocess.run(
                [*command, group["value"], "--json"], capture_output=True, text=True, check=True
            )
            assert '"revision": "5d9f7"' in told.stdout
            assert [pod.lines.end() for pod in pods] == [0, 0]
        finally:
            for pod in pods:
                pod.lines.process.kill()
                pod.lines.process.wait()


def test_worker_processes_serves_metrics_and_leaves_at_sigterm(
    tmp_path, rink_redis, etcd_url, prefix
):
    name = f"w-{prefix[5:13]}"
    servers = {"REDIS_URL": rink_redis.url, "RINK_ETCD": etcd_url, **SHORTER}
    command = [sys.executable, "-m", "rink.cli"]
    changed = {"rink": command, "--metrics-port=9100": ["--metrics-port=0"]}
    pod = Pod("streams-worker", tmp_path, name, changed=changed, **servers)
    try:
        log = pod.until("worker .* starts")
        assert f"worker {name} of app 'shop' starts" in log
        port = re.search(r"metrics are at http://0\.0\.0\.0:(\d+)/metrics", log)[1]
        eventually(f"http://127.0.0.1:{port}/readyz", 200)
        assert status(f"http://127.0.0.1:{port}/metrics") == 200
        assert "revision 5d9f7" in pod.until("revision")
        sent = '{"customer": "ann", "amount": 3}'
        send = [*command, "send", "shop:app", "orders", sent]
        subprocess.run(send, cwd=tmp_path, env={**os.environ, **servers}, check=True)
        pod.until("ann ordered 3")
        assert pod.lines.end() == 0
    finally:
        pod.lines.process.kill()
        pod.lines.process.wait()

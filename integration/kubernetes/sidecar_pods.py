"""Run programs in pods beside the sidecar, or under `rink run`.

The pods of deploy/sidecar have a shell script with the sidecar beside it.

The template is the one that kustomize renders, with its probes, hooks and grace. What our node
lacks is replaced: images by commands of this machine, references to the ConfigMap by its values,
and volumes by nothing. The program is deploy/sidecar/program.sh itself.
"""

from __future__ import annotations

import copy
import shlex
import sys
from pathlib import Path
from typing import Any

from manifests import ROOT, pods_of
from scenarios import Scenario

from rink.testing import EtcdNode

FOLDER = ROOT / "deploy" / "sidecar"
SCRIPT = FOLDER / "program.sh"
SERVER = Path(__file__).with_name("http_server.py")
SIDECAR = "rink"
PROGRAM = "program"
PERIOD_S = 0.2
"""Seconds between two calls of the program. Gaps cannot be much shorter."""
RINK = [sys.executable, "-m", "rink.cli"]
LATE_S = 4.0
GONE = "gone"
"""If this file is in a pod's folder, its program asks for no role any more once it is started."""


def pod_spec(scenario: Scenario, etcd: EtcdNode, name: str, *more: str) -> dict[str, Any]:
    """Return the spec of a row's pods.

    Args:
        scenario: the row.
        etcd: of the sidecar.
        name: of the program's container.
        more: further options of the program.
    """
    (pods,) = pods_of(FOLDER)
    values: dict[str, str] = {}
    for manifest in pods.beside:
        if manifest["kind"] == "ConfigMap":
            values |= manifest["data"]
    values |= {"RINK_ETCD": etcd.endpoint}
    spec = copy.deepcopy(pods.spec)
    del spec["volumes"], spec["topologySpreadConstraints"]
    for container in (*spec["initContainers"], *spec["containers"]):
        container["env"] = known_env(container, values)
        del container["volumeMounts"]
    (sidecar,) = spec["initContainers"]
    assert sidecar["name"] == SIDECAR, sidecar
    _change_sidecar(sidecar, scenario)
    (program,) = spec["containers"]
    assert program["name"] == PROGRAM, program
    program["name"] = name
    _change_program(program, scenario, {*scenario.program, *more})
    return spec


def known_env(container: dict[str, Any], values: dict[str, str]) -> list[dict[str, Any]]:
    """Return a container's variables, with values in place of the ConfigMap.

    A variable of the ConfigMap that has no value there is left out.
    """
    return [one for env in container.get("env", []) for one in _known(env, values)]


def _known(env: dict[str, Any], values: dict[str, str]) -> list[dict[str, Any]]:
    """Return a variable with its value in the ConfigMap, or no variable."""
    reference = env.get("valueFrom", {}).get("configMapKeyRef")
    if reference is None:
        return [env]
    if reference["key"] not in values:
        assert reference["optional"], reference
        return []
    return [{"name": env["name"], "value": values[reference["key"]]}]


def _change_sidecar(container: dict[str, Any], scenario: Scenario) -> None:
    container["command"] = _here(container["command"])
    hook = container["lifecycle"]["preStop"]["exec"]
    hook["command"] = _here(hook["command"])
    # This node has no volumes, so no folder of a tmpfs for --files.
    container["args"] = [
        f"--prefix={scenario.name}/",
        f"--rebalance-delay={scenario.rebalance_delay}",
        f"--ttl={scenario.ttl}",
    ]


def _here(command: list[str]) -> list[str]:
    assert command[0] == "rink", command
    return [*RINK, *command[1:]]


def _change_program(container: dict[str, Any], scenario: Scenario, options: set[str]) -> None:
    values = {"ROLES": " ".join(scenario.roles), "PERIOD": str(PERIOD_S)}
    container["env"] = [{"name": name, "value": value} for name, value in values.items()]
    script = shlex.quote(str(SCRIPT))
    run = f"exec sh {script}"
    if "--exit-at-once" in options:  # no handler of SIGTERM
        run = f"sed '/^trap /d' {script} > program.sh && exec sh program.sh"
    if "--crash=before-join" in options:
        run = "exit 1"
    if "--crash=late" in options:  # after it has seemed to run, and before it asks for a role
        run = f"sleep {LATE_S}; exit 1"
    if "--crash=after-join" in options:
        run = f"timeout 2 sh {script}; exit 1"
    if "--without-hook" in options:
        del container["lifecycle"]
    container["command"] = ["sh", "-c", f"test ! -e {GONE} || exec sleep infinity; {run}"]


def run_spec(scenario: Scenario, etcd: EtcdNode, name: str) -> dict[str, Any]:
    """Return the spec of pods in which `rink run` runs an HTTP server.

    It follows docs/run.md.
    """
    (role,) = scenario.roles
    grace_s = 60
    command = [
        *RINK, "run", "--group=server", f"--role={role}", "--name=$(POD_NAME)",
        f"--endpoints={etcd.endpoint}", f"--prefix={scenario.name}/", f"--ttl={scenario.ttl}",
        f"--handover-wait={scenario.handover_wait}", f"--termination-grace={grace_s}",
        "--public=0.0.0.0:8182", "--", sys.executable, str(SERVER), "8080",
    ]  # fmt: skip
    field = {"fieldRef": {"fieldPath": "metadata.name"}}
    container = {
        "name": name,
        "image": "none",
        "command": command,
        "env": [{"name": "POD_NAME", "valueFrom": field}],
        "ports": [{"name": "rink", "containerPort": 8182}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "rink"}, "periodSeconds": 2},
    }
    return {"terminationGracePeriodSeconds": grace_s, "containers": [container]}

"""What belongs together in deploy/sidecar: hooks, bounds, ports and labels."""

import shutil
import subprocess

import pytest
from manifests import ROOT, env_of, is_sidecar, pods_of, rendered

from rink.cli.sidecar import PUBLIC

FOLDER = ROOT / "deploy" / "sidecar"
(PODS,) = pods_of(FOLDER)
(SIDECAR,) = [one for one in PODS.containers if is_sidecar(one)]
(PROGRAM,) = PODS.spec["containers"]
PORT = int(PUBLIC.rpartition(":")[2])


def policy():
    (found,) = [one for one in rendered(FOLDER) if one["kind"] == "NetworkPolicy"]
    return found["spec"]


def test_program_works_until_a_successor_has_its_roles():
    seconds = PROGRAM["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert seconds > float(env_of(SIDECAR)["RINK_HANDOVER_WAIT"])
    assert seconds + 5 <= PODS.spec["terminationGracePeriodSeconds"]


def test_policy_selects_the_pods_and_leaves_nothing_open():
    selected = policy()["podSelector"]["matchLabels"]
    assert selected
    assert selected.items() <= PODS.labels.items()
    assert set(policy()["policyTypes"]) == {"Ingress", "Egress"}
    for rule in (*policy()["ingress"], *policy()["egress"]):
        assert rule.get("from") or rule.get("to")
        assert rule["ports"]


def test_policy_lets_only_the_public_port_be_reached():
    assert PORT in {one["containerPort"] for one in SIDECAR["ports"]}
    assert [one["port"] for rule in policy()["ingress"] for one in rule["ports"]] == [PORT]


def test_policy_lets_pods_reach_only_etcd_and_dns():
    reached = {one["port"] for rule in policy()["egress"] for one in rule["ports"]}
    assert reached == {2379, 53}


@pytest.mark.parametrize("shell", ["sh", "bash", "busybox"])
def test_program_is_read_by_every_shell(shell):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    words = [shell, "sh"] if shell == "busybox" else [shell]
    subprocess.run([*words, "-n", FOLDER / "program.sh"], check=True)

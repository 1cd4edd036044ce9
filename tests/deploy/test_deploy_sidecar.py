"""Test that the hooks, bounds, ports and labels of deploy/sidecar agree."""

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


@pytest.fixture(params=["sh", "bash", "busybox"])
def shell(request):
    """Return the words that start a shell."""
    if shutil.which(request.param) is None:
        pytest.skip(f"no {request.param} here")
    return ["busybox", "sh"] if request.param == "busybox" else [request.param]


def test_program_is_read_by_every_shell(shell):
    subprocess.run([*shell, "-n", FOLDER / "program.sh"], check=True)


def functions_of_program():
    """Return the script up to where it begins to ask for roles."""
    functions, found, _ = (FOLDER / "program.sh").read_text().partition("\nheld='' grant=''")
    assert found
    return functions


def run_program(shell, script):
    """Run functions of the program; return what they wrote."""
    script = f"{functions_of_program()}\n{script}"
    return subprocess.run(
        [*shell, "-c", script], check=True, input="", capture_output=True, text=True, timeout=60
    ).stdout


def test_program_works_under_each_role_if_work_reads_its_stdin(shell):
    """The roles are in a here-document.

    ssh, mysql and ffmpeg would read the rest of it.
    """
    script = """
        work() { cat >/dev/null; echo "works under $1"; }
        held="a 1 99999999999999${LINE}b 2 99999999999999${LINE}c 3 99999999999999${LINE}"
        work_all
        printf %s "$held"
    """
    told = run_program(shell, script).splitlines()
    assert told[:3] == ["works under a", "works under b", "works under c"]
    assert [line.split()[0] for line in told[3:]] == ["a", "b", "c"]


def test_program_answers_each_loss_if_its_call_reads_its_stdin(shell):
    script = """
        curl() { cat >/dev/null; echo "$*"; }
        held="a 1 99999999999999${LINE}b 2 99999999999999${LINE}" grant=secret
        take '{"role":"a","token":1,"state":"lost","until_ms":99999999999999}
              {"role":"b","token":2,"state":"lost","until_ms":99999999999999}'
    """
    told = run_program(shell, script)
    assert told.count("let go") == told.count("/v1/release") == 2

"""Test that the node starts, probes and restarts containers.

The apiserver is real.
"""

import sys

import pytest
from kube_api import at
from kube_cluster import descendants
from node_support import FOREVER, Bench, hook, shell, sidecar
from processes import is_alive

# The first one may have to build the control plane.
pytestmark = [pytest.mark.deep, pytest.mark.timeout(1800)]

SERVER = [sys.executable, "-m", "http.server", "8080", "--bind"]


@pytest.fixture(scope="module")
def bench(kube):
    made = Bench(kube, "node-runs", backoff_factor=0.1)
    yield made
    made.close()


def probe(script, **more):
    return {"exec": {"command": ["sh", "-c", script]}, "periodSeconds": 1, **more}


def server(**more):
    """Return a container that serves its working folder at the pod's address."""
    ip = {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    command = [*SERVER, "$(IP)"]
    return {"name": "main", "image": "none", "command": command, "env": [ip], **more}


def test_init_containers_run_in_order_before_the_mains(bench):
    bench.put(
        "inits",
        shell("main", f"echo main >> order; {FOREVER}"),
        initContainers=[
            shell("one", "sleep 0.3; echo one >> order"),
            sidecar("side", f"echo side >> order; {FOREVER}", startupProbe=probe("test -e order")),
            shell("two", "echo two >> order"),
        ],
    )
    bench.wait_ready("inits")
    (order,) = bench.node.settings.folder.glob("pods/*_inits_*/order")
    bench.wait(lambda: "main" in order.read_text(), "the line of main")  # it has only started
    assert order.read_text().split() == ["one", "side", "two", "main"]


def test_sidecar_that_has_not_started_keeps_the_mains_waiting(bench):
    bench.put(
        "waiting",
        shell("main", FOREVER),
        initContainers=[sidecar("side", FOREVER, startupProbe=probe("test -e go"))],
    )
    bench.wait(lambda: bench.times("waiting", "started", "side"), "its sidecar")
    assert bench.status("waiting").get("phase") == "Pending"
    (folder,) = bench.node.settings.folder.glob("pods/*_waiting_*")
    (folder / "go").touch()
    bench.wait_ready("waiting")
    assert bench.when("waiting", "started", "side") < bench.when("waiting", "started", "main")


def test_exec_probe_decides_whether_a_pod_is_ready(bench):
    bench.put("probed", shell("main", FOREVER, readinessProbe=probe("test -e ready")))
    bench.wait(lambda: bench.condition("probed", "Initialized") == "True", "its start")
    assert bench.condition("probed") == "False"
    (folder,) = bench.node.settings.folder.glob("pods/*_probed_*")
    (folder / "ready").touch()
    bench.wait_ready("probed")
    (folder / "ready").unlink()
    bench.wait(lambda: bench.condition("probed") == "False", "not ready")


def test_pods_with_one_port_have_addresses_of_their_own(kube, bench):
    if kube.why_no_network:
        pytest.skip(kube.why_no_network)
    get = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
    dial = {"tcpSocket": {"port": "web"}, "periodSeconds": 1}
    web = [{"name": "web", "containerPort": 8080}]
    bench.put("served", server(readinessProbe=get))
    bench.put("dialled", server(readinessProbe=dial, ports=web))
    bench.put("refused", server(readinessProbe={"tcpSocket": {"port": 8081}, "periodSeconds": 1}))
    for name in ("served", "dialled"):
        bench.wait_ready(name)
    assert bench.status("served")["podIP"] != bench.status("dialled")["podIP"]
    bench.wait(lambda: bench.condition("refused") == "False", "a condition of the third")


def test_failed_liveness_probe_restarts_the_container_alone(bench):
    probed = shell(
        "main", f"rm -f alive; touch alive; {FOREVER}",
        livenessProbe=probe("test -e alive", failureThreshold=2), lifecycle=hook("true"),
    )  # fmt: skip
    bench.put("alive", probed, shell("other", FOREVER))
    bench.wait_ready("alive")
    (folder,) = bench.node.settings.folder.glob("pods/*_alive_*")
    (folder / "alive").unlink()
    bench.wait(lambda: bench.container("alive").get("restartCount") == 1, "a restart")
    assert bench.when("alive", "hook ended", "main") <= bench.when("alive", "SIGTERM", "main")
    assert len(bench.times("alive", "started", "other")) == 1


def test_startup_probe_that_fails_restarts_the_container(bench):
    failing = probe("false", failureThreshold=1)
    bench.put("stuck", shell("main", FOREVER, startupProbe=failing, livenessProbe=probe("false")))
    bench.wait(lambda: bench.container("stuck").get("restartCount", 0) >= 1, "a restart")
    assert bench.condition("stuck") == "False"


def test_restarts_back_off_and_the_reason_is_shown(bench):
    """Restarts come at once, then 10, 20 and 40 s later: a tenth of that here."""
    bench.put("crashing", shell("main", "exit 3"))
    bench.wait(lambda: len(bench.times("crashing", "started", "main")) >= 4, "three restarts")
    starts, ends = (bench.times("crashing", what, "main") for what in ("started", "ended"))
    pauses = [start - end for start, end in zip(starts[1:], ends, strict=False)]
    assert pauses[0] < 1.0 <= pauses[1] < 2.0 <= pauses[2] < 4.0  # each is less than the next one

    def reason():
        return bench.container("crashing")["state"].get("waiting", {}).get("reason")

    bench.wait(lambda: reason() == "CrashLoopBackOff", "the reason")
    assert bench.container("crashing")["lastState"]["terminated"]["exitCode"] == 3


def test_restart_policy_lets_a_pod_end(bench):
    bench.put("good", shell("main", "exit 0"), restartPolicy="OnFailure")
    bench.put("bad", shell("main", "exit 2"), restartPolicy="Never")
    bench.put(
        "broken", shell("main", "exit 0"),
        initContainers=[shell("init", "exit 1")], restartPolicy="Never",
    )  # fmt: skip
    for name, phase in (("good", "Succeeded"), ("bad", "Failed"), ("broken", "Failed")):
        bench.wait(lambda n=name, p=phase: bench.status(n).get("phase") == p, f"{name}: {phase}")
    assert not bench.times("broken", "started", "main")


def test_job_of_the_real_controller_completes(bench):
    template = {"spec": {"restartPolicy": "Never", "containers": [shell("main", "sleep 0.2")]}}
    body = {"metadata": {"name": "job"}, "spec": {"completions": 2, "template": template}}
    bench.api.create(at("jobs", bench.namespace), body)
    path = at("jobs", bench.namespace, "job")
    bench.wait(lambda: bench.api.get(path)["status"].get("succeeded") == 2, "the job")


def test_downward_api_and_references_fill_the_environment(bench):
    paths = {
        "NAME": "metadata.name", "SPACE": "metadata.namespace", "UID": "metadata.uid",
        "LABEL": "metadata.labels['app']", "NODE": "spec.nodeName", "IP": "status.podIP",
    }  # fmt: skip
    env = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in paths.items()
    ]
    env.append({"name": "BOTH", "value": "$(NAME)/$(SPACE) $$(NAME) $(NONE)"})
    script = 'echo "$NAME $LABEL $NODE $UID $IP|$BOTH"; sleep 1000'
    bench.put("known", shell("main", script, env=env))
    bench.wait(lambda: "|" in bench.log("known", "main"), "its environment")
    pod = bench.pod("known")
    expected = f"known known node-runs {pod['metadata']['uid']} {pod['status']['podIP']}"
    said, both = bench.log("known", "main").strip().split("|")
    assert said == expected
    assert both == "known/node-runs $(NAME) $(NONE)"


def test_container_has_the_variables_of_its_image(kube):
    bench = Bench(kube, "node-image", image_env={"ONE": "image", "TWO": "image"})
    try:
        env = [{"name": "TWO", "value": "spec"}]
        bench.put("built", shell("main", 'echo "$ONE $TWO"; sleep 1000', env=env))
        bench.wait(lambda: bench.log("built", "main") == "image spec\n", "its environment")
    finally:
        bench.close()


def test_what_the_node_lacks_is_said_in_the_status(bench):
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    bench.put("lacking", shell("main", FOREVER, env=env))
    bench.wait(lambda: bench.times("lacking", "refused", "main"), "a refusal")
    bench.wait(
        lambda: "cannot take A" in bench.container("lacking")["state"]["waiting"]["message"],
        "the reason",
    )


def test_pods_get_other_addresses_when_their_node_starts_again(kube):
    """Pods get other addresses when their node starts again.

    The node takes its pods up by their names, and they were started in another order.
    """
    if kube.why_no_network:
        pytest.skip(kube.why_no_network)
    names = ("second", "first")
    bench = Bench(kube, "node-moved")

    def addresses():
        return {name: bench.status(name).get("podIPs") for name in names}

    try:
        for name in names:
            bench.put(name, shell("main", FOREVER))
            bench.wait_ready(name)
        second, first = addresses().values()
        bench.node.kill()
        bench.node.start()
        bench.wait(lambda: addresses() == {"second": first, "first": second}, "new addresses")
        for name in names:
            bench.delete(name)
    finally:
        bench.close()


def test_killed_node_takes_its_containers_along_and_starts_them_again(kube):
    bench = Bench(kube, "node-killed")
    try:
        bench.put("kept", shell("main", "sleep 1000 & wait"))
        bench.wait_ready("kept")
        (pid,) = [note["pid"] for note in bench.notes("kept") if note["what"] == "started"]
        bench.wait(lambda: len(descendants(pid)) == 1, "the shell's sleep")
        processes = [pid, *descendants(pid)]
        bench.node.kill()
        bench.wait(lambda: not any(is_alive(pid) for pid in processes), "their end")
        bench.node.start()
        bench.wait(lambda: len(bench.times("kept", "started", "main")) == 2, "a second start")
        bench.delete("kept")
    finally:
        bench.close()

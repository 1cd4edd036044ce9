"""Check every manifest: security, resources, bounds, environment."""

import importlib.util
import inspect
import json
import re

import pytest
from kustomized import Manifest
from manifests import (
    KUSTOMIZATIONS,
    ROOT,
    Pods,
    all_pods,
    env_of,
    is_rink,
    is_sidecar,
    name_of,
    names_in,
    names_of_rink,
    rendered,
)

import rink

PODS = all_pods()
EACH = pytest.mark.parametrize("pods", PODS, ids=lambda pods: pods.where)
RINK_PODS = [pods for pods in PODS if any(is_rink(one) for one in pods.containers)]
EACH_OF_RINK = pytest.mark.parametrize("pods", RINK_PODS, ids=lambda pods: pods.where)
CONTROLLED = [one for one in RINK_PODS if one.manifest["kind"] in {"Deployment", "StatefulSet"}]
EACH_CONTROLLED = pytest.mark.parametrize("pods", CONTROLLED, ids=lambda pods: pods.where)

FILES = [
    path
    for folder in ("deploy", "examples/kubernetes")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.is_file() and "__pycache__" not in path.parts
]
DOCKERFILES = [one for one in FILES if one.name == "Dockerfile"]
MANIFEST_FILES = [one for one in FILES if one.suffix == ".yaml"]

LAST_SECONDS = 5.0
"""Seconds for the end of a pod after it has left its group."""

ETCDCTL = {f"ETCDCTL_{name}" for name in ("ENDPOINTS", "CACERT", "CERT", "KEY")}
"""The flags that etcdctl reads from the environment, by their names."""

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
SIDECARS_OWN = {
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "runAsGroup": 10001,
    "seccompProfile": {"type": "RuntimeDefault"},
}

SECRET_NAME = re.compile(r"PASSWORD|SECRET|TOKEN|PRIVATE")
SECRET_TEXT = re.compile(r"PRIVATE KEY-----|BEGIN CERTIFICATE|://[^/\s:@]+:[^/\s@]+@")


def selects(selector: Manifest, labels: Manifest) -> bool:
    return bool(selector) and selector.items() <= labels.items()


def test_every_base_is_found():
    names = {name_of(folder) for folder in KUSTOMIZATIONS}
    bases = ("deployment", "statefulset", "streams-worker", "etcd", "etcd-tryout")
    assert {f"deploy/{base}" for base in bases} <= names
    assert len(RINK_PODS) >= 3


# ── security ─────────────────────────────────────────────────────────────────────────────────


@EACH
def test_pod_has_no_service_account_token(pods):
    assert pods.spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pods.spec


@pytest.mark.parametrize("folder", KUSTOMIZATIONS, ids=name_of)
def test_kustomization_has_no_rbac_and_no_secret(folder):
    forbidden = {
        "Secret", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding",
    }  # fmt: skip
    assert forbidden & {one["kind"] for one in rendered(folder)} == set()


@EACH
def test_pod_runs_as_a_number_that_is_not_root(pods):
    context = pods.spec["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] > 0
    assert context["runAsGroup"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pods.spec.keys()


@EACH
def test_container_has_every_restriction(pods):
    for container in pods.containers:
        context = container["securityContext"]
        assert RESTRICTED.items() <= context.items()
        if is_sidecar(container):  # it brings these along into any pod
            assert {
                name: value for name, value in context.items() if name not in RESTRICTED
            } == SIDECARS_OWN
        else:
            assert context.keys() == RESTRICTED.keys()


@EACH
def test_pod_has_no_links_to_services_in_its_environment(pods):
    """A Service named etcd would set ETCD_PORT, which etcd reads."""
    assert pods.spec["enableServiceLinks"] is False


@EACH
def test_environment_holds_no_secret(pods):
    for container in pods.containers:
        for name, value in env_of(container).items():
            assert not (SECRET_NAME.search(name) and value is not None), name


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file_holds_no_secret(path):
    assert not SECRET_TEXT.search(path.read_text(encoding="utf-8"))


def test_secret_in_plain_text_is_found():
    assert SECRET_TEXT.search("redis://me:secret@redis:6379")
    assert SECRET_TEXT.search("-----BEGIN EC PRIVATE KEY-----")
    assert not SECRET_TEXT.search("https://etcd-0.etcd:2379,https://etcd-1.etcd:2379")


# ── resources and images ─────────────────────────────────────────────────────────────────────


@EACH
def test_container_requests_resources_without_a_cpu_limit(pods):
    for container in pods.containers:
        resources = container["resources"]
        assert resources["requests"].keys() == {"cpu", "memory"}
        assert "cpu" not in resources.get("limits", {})
        if is_rink(container) and pods.where.startswith("deploy/"):
            assert resources["requests"] == {"cpu": "10m", "memory": "64Mi"}


@pytest.mark.parametrize("path", MANIFEST_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file_with_pods_that_stay_says_why_there_is_no_cpu_limit(path):
    text = path.read_text(encoding="utf-8")
    has_pods = re.search("^kind: (Deployment|StatefulSet)$", text, re.MULTILINE)
    if has_pods and "image:" in text:  # else it is a patch that adds no container
        assert "# There is no CPU limit." in text


@EACH
def test_image_has_a_pinned_tag(pods):
    for container in pods.containers:
        assert re.fullmatch(r"[\w.-]+\.[\w.-]+/[\w./-]+:v?\d+\.\d+\.\d+", container["image"])


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_dockerfile_ends_as_a_numeric_user_and_takes_signals(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    users = [line for line in lines if line.startswith("USER ")]
    assert re.fullmatch(r"USER [1-9]\d*:[1-9]\d*", users[-1])
    for line in lines:
        assert not re.match(r"(ENTRYPOINT|CMD) (?!\[)", line), "a shell would take the signals"
        assert not re.search(r":latest\b", line)


def test_dockerfile_runs_python_unbuffered_on_a_pinned_slim_image():
    text = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"^ENV .*PYTHONUNBUFFERED=1", text, re.MULTILINE)
    assert re.search(r"^ENTRYPOINT \[\"rink\"\]$", text, re.MULTILINE)
    assert re.search(r"^ARG PYTHON=3\.\d+-slim-\w+$", text, re.MULTILINE)
    assert "COPY rink rink" in text


def test_dockerfile_installs_what_the_commands_of_pods_need():
    text = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)$", text, re.MULTILINE)
    needs = {"sidecar": "sidecar", "worker": "streams"}
    commands = [one["command"] for pods in PODS for one in pods.containers]
    run = {command[1] for command in commands if command[0] == "rink"}
    assert run == needs.keys()
    assert {"cli", *needs.values()} == set(extras.split(","))


# ── what belongs together ────────────────────────────────────────────────────────────────────


@EACH
def test_selector_selects_the_template(pods):
    if pods.manifest["kind"] in {"Deployment", "StatefulSet"}:
        assert selects(pods.manifest["spec"]["selector"]["matchLabels"], pods.labels)


@EACH
def test_every_mount_has_its_volume(pods):
    volumes = {volume["name"] for volume in pods.spec.get("volumes", [])}
    claims = pods.manifest["spec"].get("volumeClaimTemplates", [])
    volumes |= {claim["metadata"]["name"] for claim in claims}
    mounted = {mount["name"] for one in pods.containers for mount in one.get("volumeMounts", [])}
    assert mounted == volumes


@EACH
def test_every_probe_asks_a_port_of_its_container(pods):
    for container in pods.containers:
        ports = {port["name"] for port in container.get("ports", [])}
        for name in ("startupProbe", "readinessProbe", "livenessProbe"):
            if name in container:
                probe = container[name]
                assert "exec" in probe or probe["httpGet"]["port"] in ports


@EACH
def test_program_that_is_run_is_mounted(pods):
    for container in pods.containers:
        if container["command"][0] in {"python", "sh"} and container["command"][1] != "-m":
            mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
            folder, _, file = container["command"][1].rpartition("/")
            assert folder in mounts
            assert file in pods.programs(container)


@pytest.mark.parametrize("folder", KUSTOMIZATIONS, ids=name_of)
def test_service_selects_pods_and_their_ports(folder):
    templates = [pods for pods in PODS if pods.beside == rendered(folder)]
    for service in [one for one in rendered(folder) if one["kind"] == "Service"]:
        (chosen,) = [one for one in templates if selects(service["spec"]["selector"], one.labels)]
        numbers = {
            port["containerPort"] for one in chosen.containers for port in one.get("ports", [])
        }
        assert {port["port"] for port in service["spec"]["ports"]} <= numbers


def etcd_of(folder: str) -> Manifest:
    """Return the StatefulSet of etcd's members in a folder of deploy/."""
    (manifest,) = [
        one for one in rendered(ROOT / "deploy" / folder) if one["kind"] == "StatefulSet"
    ]
    return manifest


def etcd_container(folder: str) -> Manifest:
    spec = etcd_of(folder)["spec"]["template"]["spec"]
    (container,) = [
        one
        for one in [*spec.get("initContainers", []), *spec["containers"]]
        if one["image"].startswith("gcr.io/etcd-development/etcd:")
    ]
    return container


def test_restored_members_are_those_of_etcd():
    """Otherwise etcd would not start on the data, or use other volumes."""
    running, restored = etcd_of("etcd"), etcd_of("etcd-restore")
    assert restored["metadata"]["name"] == running["metadata"]["name"]
    for field in ("replicas", "serviceName", "volumeClaimTemplates"):
        assert restored["spec"][field] == running["spec"][field]
    for field in ("affinity", "topologySpreadConstraints"):  # a volume may be bound to its node
        here, there = (one["spec"]["template"]["spec"][field] for one in (running, restored))
        assert json.loads(json.dumps(there).replace("etcd-restore", "etcd")) == here
    server, tool = etcd_container("etcd"), etcd_container("etcd-restore")
    assert tool["image"] == server["image"]
    shared = ("--name=", "--data-dir=", "--initial-advertise-peer-urls=", "--initial-cluster")
    words = [{word for word in one["command"] if word.startswith(shared)} for one in (server, tool)]
    assert words[0] - {"--initial-cluster-state=new"} == words[1]


# ── rollouts and evictions ───────────────────────────────────────────────────────────────────


@EACH
def test_pods_that_are_several_have_a_disruption_budget(pods):
    if pods.manifest["spec"].get("replicas", 1) == 1:
        return
    budgets = [one for one in pods.beside if one["kind"] == "PodDisruptionBudget"]
    (budget,) = [
        one for one in budgets if selects(one["spec"]["selector"]["matchLabels"], pods.labels)
    ]
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert budget["spec"]["maxUnavailable"] == 1


@EACH
def test_pods_that_are_several_are_spread(pods):
    if pods.manifest["spec"].get("replicas", 1) == 1 or "podAffinity" in pods.spec.get(
        "affinity", {}
    ):
        return
    constraints = pods.spec["topologySpreadConstraints"]
    for constraint in constraints:
        assert selects(constraint["labelSelector"]["matchLabels"], pods.labels)
        assert constraint["whenUnsatisfiable"] == "ScheduleAnyway"
    assert constraints


@EACH_CONTROLLED
def test_rollout_is_as_kubernetes_has_it_by_default(pods):
    """The recommended settings fit each strategy; minReadySeconds adds moves."""
    assert not {"strategy", "updateStrategy", "minReadySeconds"} & pods.manifest["spec"].keys()


@EACH_CONTROLLED
def test_member_name_and_revision_come_from_the_pod(pods):
    (container,) = [one for one in pods.containers if is_rink(one)]
    fields = {
        one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"]
        for one in container["env"]
        if "fieldRef" in one.get("valueFrom", {})
    }
    if is_sidecar(container):  # it has no labels
        assert fields == {"RINK_NAME": "metadata.name"}
        return
    revision = {"Deployment": "pod-template-hash", "StatefulSet": "controller-revision-hash"}
    assert fields == {
        "POD_NAME": "metadata.name",
        "POD_REVISION": f"metadata.labels['{revision[pods.manifest['kind']]}']",
    }


@EACH_CONTROLLED
def test_recommended_set_is_in_the_environment(pods):
    (container,) = [one for one in pods.containers if is_rink(one)]
    env = env_of(container)
    assert env["RINK_HANDOVER_WAIT"] == "20"
    assert env.get("RINK_TTL", "20") == "20"
    assert pods.spec["terminationGracePeriodSeconds"] == 60
    if "RINK_LEAVE_DELAY" in env:
        keeps = pods.manifest["kind"] == "StatefulSet"
        expected = ("60", "true") if keeps else ("0", "false")
        assert (env["RINK_LEAVE_DELAY"], env["RINK_KEEP_RANK"]) == expected


# ── bounds ───────────────────────────────────────────────────────────────────────────────────


def leave_s(pods: Pods, container: Manifest) -> float:
    """Return the longest time of a leave, the sum of its waits."""
    leave_timeout = inspect.signature(rink.Rink).parameters["leave_timeout"].default
    release = leave_timeout
    for name, source in pods.programs(container).items():
        if name == "shop.py":
            release = max(one.grace for one in app_of(source).processors.values())
    return float(env_of(container)["RINK_HANDOVER_WAIT"]) + leave_timeout + release + leave_timeout


def app_of(source: str):
    """Return the app that a program for `rink worker` makes."""
    space = {"__name__": "shop"}
    exec(compile(source, "shop.py", "exec"), space)
    return space["app"]


@EACH_CONTROLLED
def test_leave_ends_within_the_grace_of_the_pod(pods):
    for container in filter(is_rink, pods.containers):
        grace = pods.spec["terminationGracePeriodSeconds"]
        assert leave_s(pods, container) + LAST_SECONDS <= grace
        assert env_of(container).get("RINK_TERMINATION_GRACE", str(grace)) == str(grace)


@pytest.mark.skipif(importlib.util.find_spec("redis") is None, reason="the extra streams is absent")
def test_group_of_the_worker_is_the_one_that_its_manifest_names():
    (pods,) = [one for one in RINK_PODS if one.where.startswith("deploy/streams-worker")]
    (container,) = pods.containers
    (processor,) = app_of(pods.programs(container)["shop.py"]).processors.values()
    text = (ROOT / "deploy" / "streams-worker" / "deployment.yaml").read_text(encoding="utf-8")
    assert f"setup user FOLDER shop-worker {processor.group}`" in text


# ── names of the environment ─────────────────────────────────────────────────────────────────


def names_read(pods: Pods, container: Manifest) -> set[str]:
    """Return the names of the environment that a container's program reads."""
    read = set(names_of_rink()) if is_rink(container) else set()
    if container["command"][0] == "rink":
        read |= names_of_rink("cli")
    for name, source in pods.programs(container).items():
        if name.endswith(".py"):
            read |= names_in(source)
        if name.endswith(".go"):
            read |= set(re.findall(r'os\.Getenv\("([A-Z_]+)"\)', source))
        if name.endswith(".sh"):
            read |= set(re.findall(r"\$\{([A-Z]+):-", source))
    if "/etcd" in container["image"].rpartition("etcd-development")[2]:
        read |= ETCDCTL
    return read | set(re.findall(r"\$\((\w+)\)", " ".join(container["command"])))


@EACH
def test_every_name_that_a_manifest_sets_is_read(pods):
    for container in pods.containers:
        assert env_of(container).keys() - names_read(pods, container) == set()


def set_by_images() -> set[str]:
    """Return the names of the environment that the Dockerfiles set."""
    lines = [line for path in DOCKERFILES for line in path.read_text(encoding="utf-8").splitlines()]
    return {
        word.partition("=")[0]
        for line in lines
        if line.startswith("ENV ")
        for word in line.split()[1:]
    }


@EACH_OF_RINK
def test_every_name_that_a_program_needs_is_set(pods):
    """The programs read `os.environ[…]`, which raises without the variable."""
    for container in filter(is_rink, pods.containers):
        for source in pods.programs(container).values():
            needed = set(re.findall(r'os\.environ\["(\w+)"\]', source))
            assert needed - env_of(container).keys() - set_by_images() == set()

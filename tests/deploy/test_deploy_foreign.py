"""Test the sidecar component on manifests as others write them."""

import copy

import pytest
import yaml
from manifests import FOREIGN, ROOT, is_sidecar, name_of, pods_of, rendered

WORKLOADS = {"Deployment", "StatefulSet"}
EACH = pytest.mark.parametrize("folder", FOREIGN, ids=name_of)
OWN_VOLUMES = {"rink-files", "rink-certificates", "rink-api", "rink-token"}
SOCKET = ROOT / "tests" / "deploy" / "foreign" / "media"
LABEL = ROOT / "tests" / "deploy" / "foreign" / "leader"


def before(folder):
    """Return the workload as it was before the component."""
    (path,) = [folder / f"{kind.lower()}.yaml" for kind in WORKLOADS
               if (folder / f"{kind.lower()}.yaml").exists()]  # fmt: skip
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def after(folder):
    (workload,) = [one for one in rendered(folder) if one["kind"] in WORKLOADS]
    return workload


def spec_of(workload):
    return workload["spec"]["template"]["spec"]


def sidecar_of(folder):
    (pods,) = pods_of(folder)
    (sidecar,) = [one for one in pods.containers if is_sidecar(one)]
    return sidecar


def test_foreign_manifests_are_of_several_kinds():
    specs = [spec_of(before(folder)) for folder in FOREIGN]
    assert any(len(one["containers"]) > 1 and len(one["initContainers"]) > 1
               for one in specs if "initContainers" in one)  # fmt: skip
    hooks = [container.get("lifecycle", {}) for one in specs for container in one["containers"]]
    assert any("preStop" in one for one in hooks)
    assert any(one.get("hostNetwork") for one in specs)


@EACH
def test_component_leaves_all_but_its_own_as_it_was(folder):
    old, new = before(folder), copy.deepcopy(after(folder))
    spec, spec_before = spec_of(new), spec_of(old)
    spec["initContainers"] = [one for one in spec["initContainers"] if not is_sidecar(one)]
    spec["volumes"] = [one for one in spec["volumes"] if one["name"] not in OWN_VOLUMES]
    for field in ("initContainers", "volumes"):
        if field not in spec_before:
            assert spec.pop(field) == []
    assert spec.pop("terminationGracePeriodSeconds") >= spec_before.pop(
        "terminationGracePeriodSeconds", 30
    )
    if folder == SOCKET:
        assert spec.pop("securityContext") == {"fsGroup": 10001}
    if folder == LABEL:
        assert spec.pop("serviceAccountName") == "rink-sidecar"
        assert spec.pop("automountServiceAccountToken") is False
    assert new == old


@EACH
def test_sidecar_starts_first_and_ends_last(folder):
    first = spec_of(after(folder))["initContainers"][0]
    assert is_sidecar(first)
    assert first["restartPolicy"] == "Always"


@EACH
def test_sidecar_is_probed_at_its_public_port(folder):
    sidecar = sidecar_of(folder)
    (port,) = sidecar["ports"]
    assert port["containerPort"] == 8182
    paths = {"startup": "/startz", "liveness": "/healthz", "readiness": "/readyz?joined"}
    for kind, path in paths.items():
        assert sidecar[f"{kind}Probe"]["httpGet"] == {"path": path, "port": port["name"]}


@EACH
def test_sidecar_begins_to_leave_by_a_hook_that_returns(folder):
    command = sidecar_of(folder)["lifecycle"]["preStop"]["exec"]["command"]
    assert command == ["rink", "drain", "--wait", "0"]


@EACH
def test_grace_that_the_sidecar_knows_is_that_of_the_pod(folder):
    env = {one["name"]: one.get("value") for one in sidecar_of(folder)["env"]}
    spec = spec_of(after(folder))
    assert env["RINK_TERMINATION_GRACE"] == str(spec["terminationGracePeriodSeconds"])


@EACH
def test_sidecar_reads_a_config_map_that_exists(folder):
    workload = after(folder)
    space = workload["metadata"].get("namespace")
    maps = {
        one["metadata"]["name"]: one["data"]
        for one in rendered(folder)
        if one["kind"] == "ConfigMap" and one["metadata"].get("namespace") == space
    }
    references = [
        one["valueFrom"]["configMapKeyRef"]
        for one in sidecar_of(folder)["env"]
        if "configMapKeyRef" in one.get("valueFrom", {})
    ]
    needed = {one["key"] for one in references if not one.get("optional")}
    assert needed == {"RINK_ETCD", "RINK_GROUP"} | (
        {"RINK_LABEL_POD"} if folder == LABEL else set()
    )
    for reference in references:
        data = maps[reference["name"]]
        assert reference["key"] in data or reference.get("optional")


@EACH
def test_files_of_ends_are_in_memory(folder):
    sidecar = sidecar_of(folder)
    (place,) = [
        one.removeprefix("--files=") for one in sidecar["args"] if one.startswith("--files=")
    ]
    (mount,) = [one for one in sidecar["volumeMounts"] if one["mountPath"] == place]
    volumes = {one["name"]: one for one in spec_of(after(folder))["volumes"]}
    assert volumes[mount["name"]]["emptyDir"]["medium"] == "Memory"


def test_pod_on_the_host_network_has_its_api_on_a_socket():
    for folder in FOREIGN:
        sidecar = sidecar_of(folder)
        env = {one["name"]: one.get("value") for one in sidecar["env"]}
        listens = [one for one in sidecar["args"] if one.startswith("--listen=")]
        if spec_of(after(folder)).get("hostNetwork"):
            assert listens == [f"--listen={env['RINK_API']}"]
            assert env["RINK_API"].startswith("unix:/run/rink/")
        else:
            assert listens == []
            assert "RINK_API" not in env

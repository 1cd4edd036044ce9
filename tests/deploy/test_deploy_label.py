"""Test that the parts of deploy/sidecar/label agree.

They are the account, the rights, the policy, the pods and the Service.
"""

import re

import pytest
import yaml
from manifests import FOREIGN, ROOT, is_sidecar, pods_of, rendered

from rink.sidecar.pod_api import FOLDER as MOUNTED
from rink.sidecar.pod_label import HELD, PREFIX

FOLDER = ROOT / "deploy" / "sidecar" / "label"
(LEADER,) = [folder for folder in FOREIGN if folder.name == "leader"]
(PODS,) = pods_of(LEADER)
(SIDECAR,) = [one for one in PODS.containers if is_sidecar(one)]
ACCOUNT = "rink-sidecar"


def only(kind):
    (manifest,) = [one for one in rendered(LEADER) if one["kind"] == kind]
    return manifest


def policy():
    return only("ValidatingAdmissionPolicy")["spec"]


def test_role_allows_patches_of_pods_alone():
    assert only("Role")["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}]


def test_binding_gives_the_role_to_the_account_of_the_pods():
    binding = only("RoleBinding")
    assert binding["roleRef"]["name"] == only("Role")["metadata"]["name"]
    # Without a namespace the subject is of the binding's namespace, whichever that will be.
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": ACCOUNT}]
    assert only("ServiceAccount")["metadata"]["name"] == ACCOUNT
    assert PODS.spec["serviceAccountName"] == ACCOUNT


def test_policy_denies_and_fails_closed():
    assert policy()["failurePolicy"] == "Fail"
    binding = only("ValidatingAdmissionPolicyBinding")["spec"]
    assert binding == {
        "policyName": only("ValidatingAdmissionPolicy")["metadata"]["name"],
        "validationActions": ["Deny"],
    }


def test_policy_is_for_the_account_of_the_pods():
    (condition,) = policy()["matchConditions"]
    (pattern,) = re.findall("'(.*)'", condition["expression"])
    for name in (ACCOUNT, f"prod-{ACCOUNT}", f"{ACCOUNT}-2"):  # as kustomize renames it
        assert re.search(pattern, f"system:serviceaccount:shop:{name}")
    for user in (
        "system:serviceaccount:shop:web",
        f"{ACCOUNT}",
        f"system:serviceaccount:{ACCOUNT}:web",
    ):
        assert not re.search(pattern, user)


def test_policy_allows_the_label_that_the_sidecar_puts_on():
    text = " ".join(one["expression"] for one in policy()["validations"])
    assert text.count(f"startsWith('{PREFIX}')") == 2
    assert f"== '{HELD}'" in text


def test_token_is_mounted_into_the_sidecar_alone():
    assert PODS.spec["automountServiceAccountToken"] is False
    assert only("ServiceAccount")["automountServiceAccountToken"] is False
    (volume,) = [one for one in PODS.spec["volumes"] if "projected" in one]
    sources = volume["projected"]["sources"]
    assert [
        one["serviceAccountToken"]["path"] for one in sources if "serviceAccountToken" in one
    ] == ["token"]
    assert [one["configMap"]["items"] for one in sources if "configMap" in one] == [
        [{"key": "ca.crt", "path": "ca.crt"}]
    ]
    mounts = [
        (container["name"], mount["mountPath"])
        for container in PODS.containers
        for mount in container.get("volumeMounts", [])
        if mount["name"] == volume["name"]
    ]
    assert mounts == [(SIDECAR["name"], str(MOUNTED))]


def test_sidecar_is_told_its_pod():
    fields = {
        one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"]
        for one in SIDECAR["env"]
        if "fieldRef" in one.get("valueFrom", {})
    }
    assert fields["POD_NAME"] == "metadata.name"
    assert fields["POD_NAMESPACE"] == "metadata.namespace"


def test_service_selects_the_label_and_the_pods_of_the_app():
    selector = dict(only("Service")["spec"]["selector"])
    roles = only("ConfigMap")["data"]["RINK_LABEL_POD"].split()
    assert [selector.pop(f"{PREFIX}{role}") for role in roles] == [HELD]
    assert selector
    assert selector.items() <= PODS.labels.items()


def test_service_example_is_the_tried_service():
    example = yaml.safe_load((FOLDER / "service.yaml").read_text(encoding="utf-8"))
    assert example == only("Service")


@pytest.mark.parametrize("path", sorted((FOLDER.parent / "component").glob("*.yaml")))
def test_component_without_the_label_asks_for_no_rights(path):
    text = path.read_text(encoding="utf-8")
    assert "serviceAccount" not in text
    assert "kind: Role" not in text

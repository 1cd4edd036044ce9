"""Test that a sidecar's token may change one label of its own pod only.

The apiserver is real.
"""

import copy

import pytest
from dry_run import resource_of
from kube_api import at
from labelled_pods import APP, LABEL, Space, annotated, component, refusal, remove_policy

# The first one may have to build the control plane.
pytestmark = [pytest.mark.deep, pytest.mark.timeout(1800)]

ON = {"metadata": {"labels": {LABEL: "held"}}}
OFF = {"metadata": {"labels": {LABEL: None}}}
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}
POLICY = "ValidatingAdmissionPolicy 'rink-sidecar'"
IMAGE = [{"name": "main", "image": "registry.example.com/other:1"}]


@pytest.fixture(scope="module")
def space(kube):
    """Create a namespace with the account and the policy."""
    made = Space.made(kube, "labelled")
    pod = made.pod("first")
    made.apply_policy(made.api(pod), pod)
    yield made
    remove_policy(kube.api)
    made.close()


@pytest.fixture(scope="module")
def own(space):
    """Create a pod, and a client with its token."""
    pod = space.pod("own", annotations={"kept": "1"})
    return pod, space.api(pod)


def test_token_puts_the_label_on_its_own_pod_and_takes_it_off(space, own):
    pod, api = own
    assert refusal(api, space, pod, ON) is None
    assert space.labels("own") == APP | {LABEL: "held"}
    assert refusal(api, space, pod, OFF) is None
    assert refusal(api, space, pod, OFF) is None, "it is off"
    assert space.labels("own") == APP


def test_token_labels_a_pod_that_has_no_labels(space):
    pod = space.pod("bare", labels={})
    api = space.api(pod)
    assert refusal(api, space, pod, ON) is None
    assert refusal(api, space, pod, OFF) is None
    assert space.labels("bare") == {}


REFUSED = {
    "label of another prefix": {"metadata": {"labels": {"tier": "front"}}},
    "label like ours": {"metadata": {"labels": {"etcd-rinks/leader": "held"}}},
    "label of the app changed": {"metadata": {"labels": {"app": "other"}}},
    "label of the app removed": {"metadata": {"labels": {"app": None}}},
    "all labels removed": {"metadata": {"labels": None}},
    "another value": {"metadata": {"labels": {LABEL: "yes"}}},
    "annotation": annotated(),
    "annotation removed": {"metadata": {"annotations": {"kept": None}}},
    "annotations removed": {"metadata": {"annotations": None}},
    "finalizer": {"metadata": {"finalizers": ["example.com/stay"]}},
    "owner": {"metadata": {"ownerReferences": [OWNER]}},
    "image": {"spec": {"containers": IMAGE}},
    "deadline": {"spec": {"activeDeadlineSeconds": 1}},
    "label and image": {**ON, "spec": {"containers": IMAGE}},
    "label and annotation": {"metadata": {**ON["metadata"], **annotated()["metadata"]}},
}


# An apply removes only what its manager has applied.
TRIED = [
    (change, kind)
    for kind in ("merge", "strategic", "apply")
    for change in REFUSED
    if kind != "apply" or "removed" not in change
]


@pytest.mark.parametrize(("change", "kind"), TRIED)
def test_token_can_change_nothing_else(space, own, change, kind):
    pod, api = own
    before = space.cluster.api.get(at("pods", space.name, "own"))
    body, query = copy.deepcopy(REFUSED[change]), {}
    if kind == "apply":
        body |= {"apiVersion": "v1", "kind": "Pod"}
        body["metadata"] = {"name": "own", **body.get("metadata", {})}
        query = {"fieldManager": "thief", "force": "true"}
    assert POLICY in (refusal(api, space, pod, body, kind, **query) or "accepted")
    after = space.cluster.api.get(at("pods", space.name, "own"))
    assert after["spec"] == before["spec"]
    assert after["metadata"] == before["metadata"]


def test_refusal_names_the_policy(space, own):
    pod, api = own
    said = refusal(api, space, pod, annotated())
    assert said.startswith("403")
    assert POLICY in said
    assert "a sidecar may change labels only" in said


@pytest.mark.parametrize(
    "change",
    [
        {"op": "replace", "path": "/spec/containers/0/image", "value": "thief:1"},
        {"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}},
        {"op": "add", "path": "/metadata/labels/a", "value": "b"},
        {"op": "remove", "path": "/metadata/labels/app"},
        {"op": "replace", "path": "/metadata/labels", "value": {LABEL: "held"}},
        {"op": "move", "from": "/metadata/labels/app", "path": "/metadata/labels/etcd-rink~1app"},
        {"op": "add", "path": "/metadata/generateName", "value": "thief-"},
    ],
    ids=lambda change: f"{change['op']} {change['path']}",
)
def test_json_patch_of_anything_else_is_refused(space, own, change):
    pod, api = own
    assert POLICY in (refusal(api, space, pod, [change], "json") or "accepted")


def test_token_cannot_label_another_pod(space, own):
    other = space.pod("other")
    said = refusal(own[1], space, other, ON)
    assert "a sidecar may change its own pod only" in said
    assert space.labels("other") == APP


def test_token_of_no_pod_can_label_none(space, own):
    assert "its own pod only" in refusal(space.api(None), space, own[0], ON)


def test_token_of_a_pod_that_is_gone_can_label_no_later_pod_of_its_name(space):
    pod = space.pod("again")
    api = space.api(pod)
    assert refusal(api, space, pod, OFF) is None
    space.cluster.api.delete(at("pods", space.name, "again"), grace=0)
    later = space.pod("again")
    assert refusal(api, space, later, ON) is not None
    assert space.labels("again") == APP


def test_token_cannot_label_a_pod_of_another_namespace(space, own):
    elsewhere = Space.made(space.cluster, "labelled-too")
    pod = elsewhere.pod("own")
    assert "403" in refusal(own[1], elsewhere, pod, ON)


@pytest.mark.parametrize("sub", ["status", "ephemeralcontainers", "resize"])
def test_token_cannot_patch_a_part_of_its_pod(space, own, sub):
    said = refusal(own[1], space, {"metadata": {"name": f"own/{sub}"}}, ON)
    assert "403" in said


def test_token_cannot_create_a_pod_by_an_apply(space, own):
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"}}
    body["spec"] = {"containers": IMAGE}
    pod = {"metadata": {"name": "new"}}
    assert "403" in refusal(own[1], space, pod, body, "apply", fieldManager="thief")


def test_other_users_are_not_bound(space, own):
    assert refusal(space.cluster.api, space, own[0], annotated()) is None


@pytest.mark.parametrize("manifest", component({"ValidatingAdmissionPolicy"}))
def test_apiserver_finds_no_fault_in_the_expressions(space, manifest):
    path = at(resource_of(manifest), name=manifest["metadata"]["name"])
    status = space.cluster.api.get(path).get("status", {})
    assert "expressionWarnings" not in status.get("typeChecking", {})

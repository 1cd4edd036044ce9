"""Test that the apiserver accepts every manifest and refuses mistakes."""

import copy

import pytest
from dry_run import (
    MISSPELT,
    manifests,
    misspelt_deployment,
    place_of,
    pod_of,
    refusal,
    restricted_namespace,
)
from manifests import all_pods

# The first one may have to build the control plane.
pytestmark = [pytest.mark.deep, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def api(kube):
    """Return the apiserver, with a namespace for restricted pods."""
    with restricted_namespace(kube.api):
        yield kube.api


@pytest.mark.parametrize("manifest", [pytest.param(one, id=where) for where, one in manifests()])
def test_apiserver_accepts_the_manifest(api, manifest):
    assert refusal(api, manifest) is None


@pytest.mark.parametrize("pods", all_pods(), ids=lambda pods: pods.where)
def test_apiserver_admits_the_pods_as_restricted(api, pods):
    assert refusal(api, pod_of(pods)) is None


def test_apiserver_refuses_a_misspelt_field_if_strict(api):
    assert MISSPELT in refusal(api, misspelt_deployment())
    assert refusal(api, misspelt_deployment(), validation="Ignore") is None


def test_apiserver_refuses_a_pod_that_is_not_restricted(api):
    for pods in all_pods():
        pod = copy.deepcopy(pod_of(pods))
        del pod["spec"]["containers"][0]["securityContext"]["capabilities"]
        assert "violates PodSecurity" in refusal(api, pod), pods.where


def test_dry_run_stores_nothing(api):
    for where, manifest in manifests():
        assert refusal(api, manifest) is None
        names = {one["metadata"]["name"] for one in api.get(place_of(manifest))["items"]}
        assert manifest["metadata"]["name"] not in names, where

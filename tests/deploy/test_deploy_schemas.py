"""Test each manifest against the schemas of all supported Kubernetes.

The schemas are those of the package kubernetes-validate. A field that they do not know is an error.
"""

import copy
import functools
import re

import kubernetes_validate
import pytest
from kubernetes_validate import utils
from manifests import FOREIGN, KUSTOMIZATIONS, name_of, rendered

OLDEST = (1, 29)
NEWEST = (1, 37)
VERSIONS = [
    version
    for version in sorted({utils.major_minor(one) for one in utils.all_versions()})
    if tuple(map(int, version.split("."))) >= OLDEST
]


@pytest.fixture(autouse=True, scope="module")
def schemas_read_once():
    """Read each schema once, since the package reads all for each manifest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "schema_contents", functools.cache(utils.schema_contents))
        yield


def test_package_has_every_version_up_to_the_newest():
    assert [f"1.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1)] == VERSIONS


def has_policy(folder):
    """Return whether a kustomization has an admission policy.

    Kubernetes 1.29 lacks these policies.
    """
    return any(one["kind"] == "ValidatingAdmissionPolicy" for one in rendered(folder))


@pytest.mark.parametrize(
    ("folder", "version"),
    [
        pytest.param(folder, version, id=f"{name_of(folder)}-{version}")
        for folder in (*KUSTOMIZATIONS, *FOREIGN)
        for version in VERSIONS
        if version != "1.29" or not has_policy(folder)
    ],
)
def test_manifests_are_valid_strictly(folder, version):
    for manifest in rendered(folder):
        assert kubernetes_validate.validate(manifest, version, strict=True) == version


def misspell_strategy(spec):
    spec["strategy"] = {"rollingUpdate": {"maxSurgeX": 1}}


def misspell_context(spec):
    spec["template"]["spec"]["containers"][0]["securityContext"]["readonlyRootFilesystem"] = True


def give_text_for_number(spec):
    spec["replicas"] = "3"


def leave_out_selector(spec):
    del spec["selector"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (misspell_strategy, "maxSurgeX"),
        (misspell_context, "readonlyRootFilesystem"),
        (give_text_for_number, "'3' is not of type"),
        (leave_out_selector, "'selector' is a required property"),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_mistake_in_a_manifest_is_found(version, change, words):
    folder = next(one for one in KUSTOMIZATIONS if one.name == "deployment")
    (manifest,) = [one for one in rendered(folder) if one["kind"] == "Deployment"]
    manifest = copy.deepcopy(manifest)
    change(manifest["spec"])
    with pytest.raises(kubernetes_validate.ValidationError, match=re.escape(words)):
        kubernetes_validate.validate(manifest, version, strict=True)

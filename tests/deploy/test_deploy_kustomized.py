"""Test that the renderer equals kubectl, or refuses an input."""

import shutil
import subprocess

import pytest
import yaml
from kustomized import Unsupported, render
from manifests import FOREIGN, KUSTOMIZATIONS, name_of


def keyed(manifests):
    return {(one["kind"], one["metadata"]["name"]): one for one in manifests if one}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl to compare with")
@pytest.mark.parametrize("folder", [*KUSTOMIZATIONS, *FOREIGN], ids=name_of)
def test_render_equals_kubectl(folder):
    made = subprocess.run(
        ["kubectl", "kustomize", str(folder)], check=True, capture_output=True, text=True
    )
    assert keyed(render(folder)) == keyed(yaml.safe_load_all(made.stdout))


@pytest.fixture
def kustomization(tmp_path):
    def write(text, **files):
        (tmp_path / "kustomization.yaml").write_text(text)
        for name, content in files.items():
            (tmp_path / f"{name}.yaml").write_text(content)
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("namePrefix: a-", "namePrefix of kustomization"),
        ("configMapGenerator: [{name: a, envs: [b.env]}]", "envs of configMapGenerator"),
        ("patches: [{patch: 'a: b', target: {kind: Service}}]", "patch of patches"),
        ("patches: [{path: a.yaml, target: {name: a}}]", "name of target of patches"),
        ("images: [{name: a, digest: 'sha256:1'}]", "digest of images"),
        ("resources: [../other.yaml]", "outside of the kustomization"),
        ("configMapGenerator: [{name: a, files: [../other.py]}]", "outside of the kustomization"),
    ],
)
def test_render_unknown_feature_is_refused_by_name(kustomization, text, named):
    with pytest.raises(Unsupported, match=named):
        render(kustomization(text))


def test_render_two_manifests_of_one_name_are_refused(kustomization):
    text = "{apiVersion: v1, kind: Service, metadata: {name: a}}"
    folder = kustomization("resources: [one.yaml, two.yaml]", one=text, two=text)
    with pytest.raises(ValueError, match="two of Service a"):
        render(folder)


def test_config_map_name_changes_with_its_program(kustomization, tmp_path):
    folder = kustomization("configMapGenerator: [{name: a, files: [program.py]}]")
    names = set()
    for program in ("print(1)", "print(2)"):
        (tmp_path / "program.py").write_text(program)
        (made,) = render(folder)
        names.add(made["metadata"]["name"])
    assert len(names) == 2

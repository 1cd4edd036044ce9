"""The pages name what exists, and the values that the manifests have."""

import re

import pytest
from manifests import KUSTOMIZATIONS, ROOT, all_pods, env_of, name_of

HOW_TO = ROOT / "docs" / "kubernetes.md"
EXAMPLE = ROOT / "examples" / "kubernetes" / "kustomization.yaml"
PAGES = [HOW_TO, ROOT / "deploy" / "README.md", EXAMPLE]
PODS = all_pods()
MAX_WORDS = 400


def text_of(path):
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_applies_kustomizations_that_exist(path):
    applied = set(re.findall(r"kubectl apply -k (\S+)", text_of(path))) - {"deploy/NAME`,"}
    assert applied - {name_of(folder) for folder in KUSTOMIZATIONS} == set()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_names_workloads_that_exist(path):
    known = {f"{one.manifest['kind'].lower()}/{one.manifest['metadata']['name']}" for one in PODS}
    named = re.findall(
        r"\b((?:deployment|statefulset|job)/[\w-]+)", re.sub(r"deploy/\S+", "", text_of(path))
    )
    assert set(named) - known == set()


def test_how_to_has_at_most_400_words():
    assert len(text_of(HOW_TO).split()) <= MAX_WORDS


def test_how_to_has_the_values_of_the_deployment():
    (pods,) = [one for one in PODS if one.where.startswith("deploy/deployment")]
    env = env_of(pods.containers[0])
    env["terminationGracePeriodSeconds"] = str(pods.spec["terminationGracePeriodSeconds"])
    rows = dict(re.findall(r"^\| `(\w+)` \| ([\w ]+) \|", text_of(HOW_TO), re.MULTILINE))
    assert rows.pop("minReadySeconds") == "not set"
    assert rows
    assert rows == {name: env[name] for name in rows}


def test_every_base_is_in_the_table_of_the_readme():
    text = text_of(ROOT / "deploy" / "README.md")
    named = set(re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE)) - {"Dockerfile"}
    bases = {folder.name for folder in KUSTOMIZATIONS if folder.parent.name == "deploy"}
    assert named == bases

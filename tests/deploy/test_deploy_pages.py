"""Test that the pages have the names and values of the manifests."""

import re

import pytest
from manifests import KUSTOMIZATIONS, ROOT, all_pods, env_of, name_of

HOW_TO = ROOT / "docs" / "kubernetes.md"
HOW_TOS = sorted((ROOT / "docs").glob("kubernetes*.md"))
EXAMPLE = ROOT / "examples" / "kubernetes" / "kustomization.yaml"
PAGES = [*HOW_TOS, ROOT / "deploy" / "README.md", EXAMPLE]
PODS = all_pods()
MAX_WORDS = 400


def text_of(path):
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_applies_kustomizations_that_exist(path):
    applied = set(re.findall(r"kubectl (?:apply|delete) -k ([\w/-]+)", text_of(path))) - {
        "deploy/NAME"
    }
    assert applied - {name_of(folder) for folder in KUSTOMIZATIONS} == set()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page_names_workloads_that_exist(path):
    text = re.sub(r"deploy/\S+", "", text_of(path))
    known = {f"{one.manifest['kind'].lower()}/{one.manifest['metadata']['name']}" for one in PODS}
    made = re.findall(r"kubectl create job --from=(\S+) (\S+)", text)
    assert {source for source, _ in made} <= known
    known |= {f"job/{name}" for _, name in made}
    named = re.findall(r"\b((?:deployment|statefulset|job)/[\w-]+)", text)
    assert set(named) - known == set()


@pytest.mark.parametrize("path", HOW_TOS, ids=lambda path: path.name)
def test_how_to_has_at_most_400_words(path):
    assert len(text_of(path).split()) <= MAX_WORDS


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

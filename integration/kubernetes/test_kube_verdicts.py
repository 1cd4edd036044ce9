"""The judges of the parts of `make k8s` complain of what is bad. No server is needed."""

import pytest
from dry_run import MISSPELT, Tried, verdict

GOOD = [Tried("deploy/one: Job one", None)]
BAD = [Tried("deploy/one: Job one", "422 Invalid")]
REFUSED = f'unknown field "spec.{MISSPELT}"'


@pytest.mark.parametrize(
    ("tried", "pods", "misspelt", "words"),
    [
        (BAD, GOOD, REFUSED, "deploy/one: Job one: 422 Invalid"),
        (GOOD, BAD, REFUSED, "deploy/one: Job one: 422 Invalid"),
        ([], GOOD, REFUSED, "there are no manifests"),
        (GOOD, [], REFUSED, "no pods"),
        (GOOD, GOOD, None, "was not refused by name: None"),
        (GOOD, GOOD, "the apiserver has gone", "was not refused by name: the apiserver has gone"),
    ],
)
def test_verdict_on_a_dry_run_names_what_is_wrong(tried, pods, misspelt, words):
    (miss,) = verdict(tried, pods, misspelt, 1.0).misses
    assert words in miss


def test_verdict_on_a_good_dry_run_misses_nothing():
    assert verdict(GOOD, GOOD, REFUSED, 1.0).misses == ()

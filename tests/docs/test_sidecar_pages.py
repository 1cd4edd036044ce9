"""Test that the pages of the sidecar and `rink run` are true and short.

Their examples are shown as they stand. The pages on Kubernetes have their test in tests/deploy.
"""

import pytest
from docs_support import ROOT, blocks

from rink.sidecar.consumer_turns import ConsumerTurns
from rink.sidecar.membership import Membership
from rink.sidecar.metrics import SidecarMetrics
from rink.sidecar.service import Service

EXAMPLES = ROOT / "examples" / "sidecar"
MAX_WORDS = 400


@pytest.mark.parametrize(
    ("page", "language", "example"),
    [
        ("sidecar-clients.md", "sh", "shell/hold.sh"),
        ("sidecar-fence.md", "sql", "fence.sql"),
    ],
)
def test_sidecar_page_shows_its_example(page, language, example):
    (block,) = blocks(ROOT / "docs" / page, language)
    assert block.code == (EXAMPLES / example).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "page",
    ["sidecar.md", "sidecar-clients.md", "sidecar-fence.md", "run.md", "cron.md"],
)
def test_how_to_page_is_short(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert len(text.split()) <= MAX_WORDS


def test_reference_names_each_metric_of_the_sidecar():
    service = Service(ConsumerTurns(1, 30_000))
    metrics = SidecarMetrics(service, Membership(service, lambda: None, 0.0)).collect()
    names = {sample.name for metric in metrics for sample in metric.samples}
    described = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert len(names) == 11
    assert {name for name in names if f"`{name}`" not in described} == set()

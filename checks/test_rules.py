"""Every rule that is cited can be looked up, and every rule is cited."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RULES = ROOT / "docs" / "internals" / "rules.md"


def cited(folder):
    texts = [path.read_text() for path in (ROOT / folder).rglob("*.py")]
    return {number for text in texts for number in re.findall(r"\bR(\d{1,2})\b", text)}


def test_rules_cited_are_those_of_the_page():
    written = set(re.findall(r"^## R(\d+) ", RULES.read_text(), re.MULTILINE))
    assert cited("rink") | cited("tests") | cited("integration") == written

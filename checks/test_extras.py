"""Check that texts name the extras of our distribution.

It is `etcd-rink`; `rink` is another project.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("rink", "pyspark_rink", "docs", "tests", "integration", "examples", "bench")
EXTRA = re.compile(r"(?<![-\w.])rink\[[a-z][a-z0-9,]*\]")


def test_texts_name_extras_of_our_distribution():
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.[mp][dy]")]
    misnamed = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in [*paths, *ROOT.glob("*.md")]
        for line in path.read_text(encoding="utf-8").splitlines()
        if EXTRA.search(line)
    ]
    assert misnamed == []


def test_extra_of_another_distribution_is_found():
    assert EXTRA.search("pip install 'rink[cli]'")
    assert not EXTRA.search("pip install 'etcd-rink[cli,streams]'")

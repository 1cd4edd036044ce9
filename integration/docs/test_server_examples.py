"""Run the examples of the documentation that need real servers."""

import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "docs"))
from docs_support import all_blocks, run

pytestmark = pytest.mark.waits

SERVER = [block for block in all_blocks("python") if block.needs == "server"]


@pytest.mark.parametrize("block", SERVER, ids=lambda block: block.where)
def test_example_runs_on_real_servers(block, request, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # an example may leave a folder
    run(block, request)

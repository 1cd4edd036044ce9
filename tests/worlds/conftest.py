"""The etcd of dicts of the core's tests is the etcd of the worlds too; how large they were is told."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "core"))

RESULTS = pytest.StashKey[list]()


def pytest_configure(config):
    config.stash.setdefault(RESULTS, [])


@pytest.fixture
def tell(request):
    """Have a world's result shown at the end of the run."""
    return request.config.stash[RESULTS].append


def pytest_terminal_summary(terminalreporter, config):
    results = config.stash[RESULTS]
    if not results:
        return
    terminalreporter.section("small worlds")
    for result in results:
        terminalreporter.write_line(
            f"{result.name:40} {result.states:9,} states {result.moves:10,} moves "
            f"{result.seconds:6.1f} s"
        )
    total, seconds = sum(one.states for one in results), sum(one.seconds for one in results)
    terminalreporter.write_line(f"{'together':40} {total:9,} states {seconds:25.1f} s")

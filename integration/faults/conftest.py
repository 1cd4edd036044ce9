"""Make scenes of faults, and collect the table of their effects."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("ledger", "scene", "table")

from scene import Scene  # noqa: E402 - needs the path above
from table import Row, shown, write  # noqa: E402 - needs the path above

ROWS = pytest.StashKey[list[Row]]()


def pytest_addoption(parser):
    parser.addoption("--fault-table", metavar="FILE", help="write the table of faults as JSON")


def pytest_configure(config):
    config.stash[ROWS] = []


def pytest_terminal_summary(terminalreporter, config):
    rows = config.stash.get(ROWS, [])
    if not rows:
        return
    terminalreporter.write(shown(rows, terminalreporter._tw.fullwidth))
    path = config.getoption("--fault-table", None)
    if path:
        write(rows, Path(path))


@pytest.fixture
def record(request):
    """Record a row of the table, for a test without a single scene."""
    return request.config.stash.setdefault(ROWS, []).append


@pytest.fixture
def scene_on(record, prefix, tmp_path_factory):
    """Make scenes on any endpoints; end them in teardown."""
    scenes = []

    def scene_on(endpoints):
        made = Scene(endpoints, prefix, tmp_path_factory.mktemp("scene"), record)
        scenes.append(made)
        return made

    yield scene_on
    for made in scenes:
        made.close()


@pytest.fixture
def scene(scene_on, cluster):
    """Make a scene on the cluster of the file."""
    return scene_on(cluster.endpoints)

"""Run a sidecar without sockets, with a stand-in for its member.

Tests call its application in this process.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "streams"))  # the event loop whose time jumps

import pytest
from turn_story import Story


@pytest.fixture
def story():
    """Return turns whose clock and member the test moves."""
    return Story()

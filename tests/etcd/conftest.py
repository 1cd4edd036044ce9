"""Clients of a scripted etcd, closed in the end."""

import contextlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("etcd_scripted")

from rink.etcd.client import Client  # noqa: E402 - as everything that follows the path above


@pytest.fixture
def clients():
    """Makes clients, and closes them in the end."""
    with contextlib.ExitStack() as stack:

        def make(*endpoints, **settings):
            return stack.enter_context(Client(endpoints, **settings))

        yield make

"""Run servers and clients for the tests of our etcd client."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import pytest

from rink.etcd.client import Client
from rink.testing import local_etcd

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "tests" / "etcd")]
pytest.register_assert_rewrite("etcd_support", "etcd_scripted")


@pytest.fixture(autouse=True)
def patient_watch(monkeypatch):
    """Give each watch time to prove its history.

    A watch that a busy machine keeps waiting opens anew, which is right. The tests count openings.
    """
    monkeypatch.setattr("rink.etcd.watch._PROOF_TIMEOUT_S", 8.0)


@pytest.fixture
def clients():
    """Make clients; close them in teardown."""
    with contextlib.ExitStack() as stack:

        def make(endpoints, **settings):
            endpoints = [endpoints] if isinstance(endpoints, str) else endpoints
            return stack.enter_context(Client(endpoints, **settings))

        yield make


@pytest.fixture(scope="module")
def one_node():
    """Run an etcd for one file, which tests may kill and freeze."""
    with local_etcd(fsync=False) as node:
        yield node


@pytest.fixture
def node(one_node):
    """Make sure that the node runs when a test begins."""
    one_node.thaw()
    one_node.start()
    return one_node

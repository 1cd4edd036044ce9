"""Processes, and etcd servers that a test may break."""

import sys
from pathlib import Path

import pytest
from members import Worker

from rink.testing import local_etcd
from rink.testing.history import History

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def history():
    return History()


@pytest.fixture
def start(history, etcd_url, prefix):
    """Starts members in processes of their own; all are gone in the end."""
    workers = []

    def start(name, endpoints=etcd_url, **settings):
        worker = Worker(history, name, endpoints, prefix, **settings)
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        worker.close()


@pytest.fixture
def one_node():
    """An etcd of the test's own, to be killed and frozen."""
    with local_etcd(fsync=False) as node:
        yield node

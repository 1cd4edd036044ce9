"""Run processes, and etcd servers that a test may break."""

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
    """Start members in processes of their own; end them in teardown."""
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
    """Run an etcd for one test, which may kill and freeze it."""
    with local_etcd(fsync=False) as node:
        yield node

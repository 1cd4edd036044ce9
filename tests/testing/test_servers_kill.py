"""Test that a kill of etcd loses no acknowledged write.

Before 3.4.21 and 3.5.5 a single-node etcd acknowledges too early (etcd issue 14370).
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from rink.testing.etcd_server.node import EtcdNode


class Scripted:
    """A process that records its signals, and runs until it is killed."""

    pid = 1
    log_path: Path | None = None

    def __init__(self, steps):
        self._steps, self._runs = steps, True

    def start(self):
        self._runs = True

    def is_running(self):
        return self._runs

    def signal(self, number):
        self._steps.append(number)
        self._runs = self._runs and number != signal.SIGKILL

    def log(self):
        return ""


@pytest.fixture
def steps(monkeypatch):
    """Record the reads and signals of a node, in order."""
    recorded = []
    monkeypatch.setattr(EtcdNode, "_get", lambda _node, path: recorded.append(path) or "{}")
    return recorded


def node(steps, *, is_alone):
    process = Scripted(steps)
    return EtcdNode("n0", "e", process, health_url="h", deadline=1.0, is_alone=is_alone)


def test_kill_of_a_single_node_reads_before_the_signal(steps):
    node(steps, is_alone=True).kill()
    assert steps == ["/health", signal.SIGKILL]


def test_kill_of_a_frozen_or_ended_node_reads_nothing(steps):
    frozen, gone = node(steps, is_alone=True), node(steps, is_alone=True)
    gone.kill()
    steps.clear()
    gone.kill()
    frozen.freeze()
    frozen.kill()
    assert steps == [signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL]


def test_kill_of_a_cluster_node_reads_nothing(steps):
    node(steps, is_alone=False).kill()
    assert steps == [signal.SIGKILL]

"""A kill of a test's etcd keeps the writes that it has answered (etcd's issue 14370)."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from rink.testing.etcd_server.node import EtcdNode


class Scripted:
    """A process that notes its signals, and runs until it is killed."""

    pid = 1
    log_path: Path | None = None

    def __init__(self, happened):
        self._happened, self._runs = happened, True

    def start(self):
        self._runs = True

    def is_running(self):
        return self._runs

    def signal(self, number):
        self._happened.append(number)
        self._runs = self._runs and number != signal.SIGKILL

    def log(self):
        return ""


@pytest.fixture
def happened(monkeypatch):
    """The reads and signals of a node, in their order."""
    noted = []
    monkeypatch.setattr(EtcdNode, "_get", lambda _node, path: noted.append(path) or "{}")
    return noted


def node(happened, *, is_alone):
    process = Scripted(happened)
    return EtcdNode("n0", "e", process, health_url="h", deadline=1.0, is_alone=is_alone)


def test_one_alone_is_read_before_it_is_killed_so_that_its_log_holds_every_answer(happened):
    node(happened, is_alone=True).kill()
    assert happened == ["/health", signal.SIGKILL]


def test_one_that_would_not_answer_is_killed_at_once(happened):
    frozen, gone = node(happened, is_alone=True), node(happened, is_alone=True)
    gone.kill()
    happened.clear()
    gone.kill()
    frozen.freeze()
    frozen.kill()
    assert happened == [signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL]


def test_one_of_several_is_killed_at_once(happened):
    node(happened, is_alone=False).kill()
    assert happened == [signal.SIGKILL]

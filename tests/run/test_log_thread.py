"""Test the end of the log, with a late thread and without a reader."""

import logging
import threading

import pytest

from rink.run import log_thread
from rink.run.log_thread import LogThread

LONG_S = 20.0


class LateHandler(logging.Handler):
    """Write lines only once a test allows it."""

    def __init__(self):
        super().__init__()
        self.go = threading.Event()
        self.lines = []

    def emit(self, record):
        self.go.wait(LONG_S)
        self.lines.append(record.getMessage())


@pytest.fixture
def late(monkeypatch):
    """Return a handler in place of that of stderr."""
    handler = LateHandler()
    monkeypatch.setattr(log_thread.logging, "StreamHandler", lambda: handler)
    yield handler
    handler.go.set()


def say(log, text):
    log.handle(logging.makeLogRecord({"msg": text}))


def test_last_lines_of_a_thread_that_is_late_are_waited_for(monkeypatch, late):
    looks = []

    def can_write():
        looks.append(None)
        if len(looks) == 3:
            late.go.set()
        return True

    monkeypatch.setattr(log_thread, "LAST_LINES_TIMEOUT_S", LONG_S)
    monkeypatch.setattr(log_thread, "_can_write", can_write)
    log = LogThread()
    say(log, "the end")
    log.flush()
    assert late.lines == ["the end"]


def test_last_lines_that_nobody_reads_are_given_up(monkeypatch, late):
    monkeypatch.setattr(log_thread, "_can_write", lambda: False)
    log = LogThread()
    say(log, "the end")
    log.flush()
    assert late.lines == []

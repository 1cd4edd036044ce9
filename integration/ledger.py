"""Serve a resource that checks fencing tokens to a test's members.

Its SQL is the README's, on SQLite. The process of the test serves it on a socket. So the resource
itself knows which writes it accepted, in which order. A member that is frozen in the middle of a
write holds no lock that others need.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sqlite3
import threading
from pathlib import Path
from typing import Any

from rink.engine.clock import SYSTEM
from rink.testing.history import History, HistoryEvent

FENCED = """
INSERT INTO totals (job, token, total) VALUES (:role, :token, 1)
ON CONFLICT (job) DO UPDATE SET token = excluded.token, total = totals.total + 1
WHERE totals.token <= excluded.token
"""


class Ledger:
    """Serve the resource until `close`.

    Args:
        history: gets each write, accepted or refused.
        folder: for the socket.

    Attributes:
        path: of the socket. It takes lines of JSON: who, role, token, until; and answers each.
        until: each writer's latest deadline.
    """

    def __init__(self, history: History, folder: Path) -> None:
        self._history = history
        self._lock = threading.Lock()
        self._rows = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._rows.execute("CREATE TABLE totals (job TEXT PRIMARY KEY, token BIGINT, total BIGINT)")
        self.path = str(folder / "ledger")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self.until: dict[str, float] = {}
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def write(self, who: str, role: str, token: int, until: float | None) -> bool:
        """Return whether the write was accepted."""
        with self._lock:
            changed = self._rows.execute(FENCED, {"role": role, "token": token}).rowcount
            what = "accepted" if changed else "refused"
            self._history.add(HistoryEvent(what, who, SYSTEM.now(), role, token, until))
            if until is not None:
                self.until[who] = until
        return bool(changed)

    def close(self) -> None:
        """End it; its members have ended."""
        for end in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()
        for end in (self._listener, *self._ends):
            end.close()
        self._rows.close()

    def _begin(self, target: Any, *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, name="ledger", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                end, _ = self._listener.accept()
                self._ends.append(end)
                self._begin(self._serve, end)

    def _serve(self, end: socket.socket) -> None:
        with contextlib.suppress(OSError), end.makefile("rw") as lines:
            for line in lines:
                with contextlib.suppress(json.JSONDecodeError):  # cut short by SIGKILL
                    print(json.dumps(self.write(**json.loads(line))), file=lines, flush=True)

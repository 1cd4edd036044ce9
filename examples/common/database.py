"""Write to a SQLite file from several processes, each with one connection."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Database:
    """Hold one member's connection. Its methods may be called from any thread."""

    def __init__(self, path: Path, member: str = "", *, check_fence: bool = True) -> None:
        self.member = member
        self.check_fence = check_fence  # False only to show that the checks notice it
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")

    def close(self) -> None:
        self._db.close()

    def is_locked(self) -> bool:
        """Return whether some process is in the middle of a write right now."""
        with self._lock:
            self._db.execute("PRAGMA busy_timeout = 0")
            try:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.execute("ROLLBACK")
            except sqlite3.OperationalError:
                return True
            finally:
                self._db.execute("PRAGMA busy_timeout = 30000")
        return False

    def _read(self, sql: str, *values: object) -> list[tuple]:
        with self._lock:
            return self._db.execute(sql, values).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")  # take the write lock before reading the fence
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

"""Store the results, and check fencing tokens.

Rink guarantees that two live processes never hold one role. But a process that was frozen in the
middle of a write finishes it when it thaws, long after its role went elsewhere. Only the store can
refuse this write. It needs only the highest token that it has seen for each role.

The totals are kept by *adding*, and the position of a job by *overwriting*. There is no second
guard on purpose: a chunk that is written twice, or by two owners, makes the totals wrong for good.
"""

import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from common.database import Database

from flights_demo.data import Job, Total, Totals

SCHEMA = """
CREATE TABLE fences (role TEXT PRIMARY KEY, token INTEGER NOT NULL);
CREATE TABLE jobs (id TEXT PRIMARY KEY, carrier TEXT, month INTEGER, day INTEGER,
    size INTEGER, next INTEGER DEFAULT 0);
CREATE TABLE totals (carrier TEXT, month INTEGER, flights INTEGER, cancelled INTEGER,
    delay INTEGER, PRIMARY KEY (carrier, month));
CREATE TABLE board (carrier TEXT PRIMARY KEY, flights INTEGER, member TEXT, token INTEGER);
-- For the checks afterwards: every accepted write, and every refused one.
CREATE TABLE accepted (seq INTEGER PRIMARY KEY, role TEXT, token INTEGER, member TEXT,
    first INTEGER, count INTEGER, at REAL);
CREATE TABLE refused (seq INTEGER PRIMARY KEY, role TEXT, token INTEGER, highest INTEGER,
    member TEXT, at REAL);
CREATE TABLE open_until (month INTEGER);
"""


class StaleWrite(Exception):  # noqa: N818 - it names the event, as Rink's own errors do
    """Report that a greater token was seen for the role; nothing was written."""


class Store(Database):
    """Hold one member's connection to the store. Any thread may use it."""

    def create(self, jobs: Iterable[Job], open_until: int) -> None:
        self._db.executescript(SCHEMA)
        with self._transaction() as db:
            db.execute("INSERT INTO open_until VALUES (?)", (open_until,))
            db.executemany(
                "INSERT INTO jobs (id, carrier, month, day, size) VALUES (?, ?, ?, ?, ?)",
                [(job.id, job.carrier, job.month, job.day, len(job.delays)) for job in jobs],
            )

    # For processors.

    def pending(self) -> list[str]:
        """Return the delivered jobs that are not done, begun ones first."""
        return [
            row[0]
            for row in self._read(
                "SELECT id FROM jobs WHERE next < size AND month <= (SELECT month FROM open_until)"
                " ORDER BY next = 0, month, day, carrier"
            )
        ]

    def position(self, job: str) -> int:
        """Return the number of flights of the job that are done."""
        [(position,)] = self._read("SELECT next FROM jobs WHERE id = ?", job)
        return int(position)

    def add(self, job: Job, first: int, count: int, *, token: int) -> None:
        """Add a chunk of a job to the totals, if `token` is still good."""
        total = job.total(first, count)
        with self._fenced(job.id, token, first, count) as db:
            db.execute("UPDATE jobs SET next = ? WHERE id = ?", (first + count, job.id))
            db.execute(
                "INSERT INTO totals VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
                " flights = flights + excluded.flights,"
                " cancelled = cancelled + excluded.cancelled, delay = delay + excluded.delay",
                (job.carrier, job.month, total.flights, total.cancelled, total.delay),
            )

    def publish(self, carrier: str, role: str, *, token: int) -> None:
        """Put the carrier's line on the board, if `token` is good for its role."""
        with self._fenced(role, token) as db:
            db.execute(
                "INSERT OR REPLACE INTO board"
                " SELECT ?, COALESCE(SUM(flights), 0), ?, ? FROM totals WHERE carrier = ?",
                (carrier, self.member, token, carrier),
            )

    @contextmanager
    def _fenced(
        self, role: str, token: int, first: int | None = None, count: int = 0
    ) -> Iterator[sqlite3.Connection]:
        """Run a transaction if no greater token was seen for the role."""
        with self._transaction() as db:
            row = db.execute("SELECT token FROM fences WHERE role = ?", (role,)).fetchone()
            highest = row[0] if row else token
            stale = token < highest
            if stale and self.check_fence:
                db.execute(
                    "INSERT INTO refused (role, token, highest, member, at) VALUES (?, ?, ?, ?, ?)",
                    (role, token, highest, self.member, time.monotonic()),
                )
            else:
                db.execute("INSERT OR REPLACE INTO fences VALUES (?, ?)", (role, token))
                db.execute(
                    "INSERT INTO accepted (role, token, member, first, count, at)"
                    " VALUES (?, ?, ?, ?, ?, ?)",
                    (role, token, self.member, first, count, time.monotonic()),
                )
                yield db
                return
        # Only here is the refusal itself committed.
        raise StaleWrite(f"{role}: token {token}, but {highest} has been seen")

    # For the onlooker.

    def open(self, month: int) -> None:
        """Let the processors see the jobs up to this month."""
        with self._transaction() as db:
            db.execute("UPDATE open_until SET month = ?", (month,))

    def done(self) -> int:
        [(done,)] = self._read("SELECT COUNT(*) FROM jobs WHERE next >= size")
        return int(done)

    def totals(self) -> Totals:
        rows = self._read("SELECT carrier, month, flights, cancelled, delay FROM totals")
        return {(carrier, month): Total(*rest) for carrier, month, *rest in rows}

    def sizes(self) -> dict[str, int]:
        return dict(self._read("SELECT id, size FROM jobs"))

    def accepted(self) -> list[tuple[str, int, str, int | None, int]]:
        """Return the accepted writes in order: role, token, member, first, count."""
        return self._read("SELECT role, token, member, first, count FROM accepted ORDER BY seq")

    def refused(self) -> list[tuple[str, int, int, str]]:
        """Return the refused writes in order: role, token, highest, member."""
        return self._read("SELECT role, token, highest, member FROM refused ORDER BY seq")

    def greatest_token(self, role: str) -> int:
        rows = self._read("SELECT token FROM fences WHERE role = ?", role)
        return rows[0][0] if rows else 0

"""Keep the results of `plain` in a ledger outside of Redis, with a fence.

Offset and ledger are two systems, so one of them is ahead after a crash. Here it is the ledger,
since the offset is committed after it. The next owner gets the uncommitted legs again, and the
ledger shows it which of them are done.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from sqlite3 import Connection

from common.database import Database

from rink.errors import StaleToken
from streams_demo.legs import Aircraft

SCHEMA = """
CREATE TABLE fences (partition INTEGER PRIMARY KEY, token INTEGER NOT NULL);
CREATE TABLE fleet (key TEXT PRIMARY KEY, partition INTEGER,
    number INTEGER, delay INTEGER, chain INTEGER, longest INTEGER, day INTEGER);
CREATE INDEX of_partition ON fleet (partition);
-- For the checks afterwards: the written states, the repeated legs, and the refused writes.
CREATE TABLE steps (seq INTEGER PRIMARY KEY, partition INTEGER, at REAL, worker TEXT, token INTEGER,
    key TEXT, number INTEGER, delay INTEGER, chain INTEGER, longest INTEGER, day INTEGER);
CREATE TABLE again (partition INTEGER, token INTEGER, worker TEXT, key TEXT, number INTEGER);
CREATE TABLE refused (partition INTEGER, token INTEGER, highest INTEGER, worker TEXT);
"""

Entry = tuple[str, Aircraft]  # an aircraft's key, and the aircraft after a leg


class Ledger(Database):
    """Hold one worker's connection to the ledger. Any thread may use it."""

    def create(self) -> None:
        self._db.executescript(SCHEMA)

    # For processors.

    def take(self, partition: int, token: int) -> dict[str, Aircraft]:
        """Shut out all earlier owners, then return each aircraft's state.

        The order matters: until the fence is raised, an earlier owner may still change the states.
        """
        with self._fenced(partition, token) as db:
            rows = db.execute(
                "SELECT key, number, delay, chain, longest, day FROM fleet WHERE partition = ?",
                (partition,),
            )
            return {key: Aircraft(*rest) for key, *rest in rows}

    def write(
        self, partition: int, token: int, entries: Sequence[Entry], again: Iterable[tuple[str, int]]
    ) -> None:
        """Write states and note repeated legs, if `token` is still good."""
        with self._fenced(partition, token) as db:
            now = time.monotonic()
            db.executemany(
                "INSERT INTO steps (partition, at, worker, token, key, number, delay, chain,"
                " longest, day) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(partition, now, self.member, token, key, *state) for key, state in entries],
            )
            db.executemany(
                "INSERT OR REPLACE INTO fleet VALUES (?, ?, ?, ?, ?, ?, ?)",
                [(key, partition, *state) for key, state in dict(entries).items()],
            )
            db.executemany(
                "INSERT INTO again VALUES (?, ?, ?, ?, ?)",
                [(partition, token, self.member, *leg) for leg in again],
            )

    @contextmanager
    def _fenced(self, partition: int, token: int) -> Iterator[Connection]:
        """Run a transaction if no greater token was seen for the partition."""
        with self._transaction() as db:
            found = db.execute("SELECT token FROM fences WHERE partition = ?", (partition,))
            highest = next(found, (token,))[0]
            if token >= highest or not self.check_fence:
                db.execute("INSERT OR REPLACE INTO fences VALUES (?, ?)", (partition, token))
                yield db
                return
            values = (partition, token, highest, self.member)
            db.execute("INSERT INTO refused VALUES (?, ?, ?, ?)", values)
        # Only here is the refusal itself committed.
        raise StaleToken(f"partition {partition}: token {token}, but {highest} has been seen")

    # What the onlooker asks.

    def written(self) -> int:
        [(count,)] = self._read("SELECT COALESCE(MAX(seq), 0) FROM steps")
        return int(count)

    def steps(self) -> list[tuple]:
        """Return the written states: partition, at, worker, token, key, aircraft."""
        rows = self._read(
            "SELECT partition, at, worker, token, key, number, delay, chain, longest, day"
            " FROM steps ORDER BY seq"
        )
        return [(*row[:5], Aircraft(*row[5:])) for row in rows]

    def again(self) -> list[tuple[int, int, str, str, int]]:
        """Return the repeated legs: partition, token, worker, key, number."""
        return self._read("SELECT partition, token, worker, key, number FROM again")

    def refused(self) -> list[tuple[int, int, int, str]]:
        """Return the refused writes: partition, token, highest seen, worker."""
        return self._read("SELECT partition, token, highest, worker FROM refused")

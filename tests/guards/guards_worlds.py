"""Make one guard of each kind, with a place to write to.

Contract and model run on these worlds. Each write adds one to a counter: "this part of this batch
of this query was here". `contents()` returns the counters.
"""

import sqlite3
from collections import Counter
from contextlib import closing

import pyarrow as pa
import sqlalchemy as sa

from rink.guards import Batch, Fence, ParquetGuard, RedisGuard, SqlGuard

ROWS = sa.table("written", sa.column("what"))
SCHEMA = pa.schema([("what", pa.string())])


def what_of(batch, number):
    return f"{batch.query!a} {batch.number} {number}"  # PostgreSQL takes no NUL


class World:
    """A guard, and how it differs from others.

    Attributes:
        publishes_at_finish: parts are seen once their batch is finished, not before.
        raises_inside: the fence can be raised while a part is open; otherwise raising waits.
    """

    publishes_at_finish = False
    raises_inside = True

    def write(self, step, batch, number):
        raise NotImplementedError

    def contents(self):
        raise NotImplementedError

    def write_part(self, fence, batch, number, guard=None):
        """Write one part as users do; return its result, or None if written."""
        part = (guard or self.guard).part(fence, batch, number)
        with part as step:
            if step is not None:
                self.write(step, batch, number)
        return part.result

    def write_batch(self, fence, batch, guard=None):
        guard = guard or self.guard
        guard.begin(fence, batch)
        results = [self.write_part(fence, batch, number, guard) for number in range(batch.parts)]
        guard.finish(fence, batch, results)

    def whole(self, *batches):
        return Counter(what_of(batch, number) for batch in batches for number in range(batch.parts))

    def close(self):
        self.guard.close()


class SqlWorld(World):
    def __init__(self, url, **settings):
        self.guard = SqlGuard(url, **settings)
        self.engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
        self.raises_inside = self.engine.dialect.name != "sqlite"
        with self.engine.begin() as connection:
            connection.execute(sa.text("DROP TABLE IF EXISTS written"))
            connection.execute(sa.text("CREATE TABLE written (what TEXT)"))

    def write(self, step, batch, number):
        step.execute(sa.insert(ROWS), {"what": what_of(batch, number)})

    def contents(self):
        with self.engine.connect() as connection:
            return Counter(connection.scalars(sa.select(ROWS.c.what)))


class SqliteWorld(SqlWorld):
    def __init__(self, folder):
        self.path = folder / "data.db"
        with closing(sqlite3.connect(self.path)) as made:
            made.execute("PRAGMA journal_mode=WAL")
        super().__init__(f"sqlite:///{self.path}")


class ParquetWorld(World):
    publishes_at_finish = True

    def __init__(self, folder):
        self.guard = ParquetGuard(folder)

    def write(self, step, batch, number):
        step.write_rows([{"what": what_of(batch, number)}], SCHEMA)

    def contents(self):
        with ParquetGuard(self.guard._directory) as fresh:
            table = fresh.read()
        return Counter(table["what"].to_pylist() if table.num_columns else ())


class RedisWorld(World):
    def __init__(self, source, client, **settings):
        self.guard = RedisGuard(source, **settings)
        self.client = client

    def write(self, step, batch, number):
        step.hincrby(step.key("written"), what_of(batch, number), 1)

    def contents(self):
        found = Counter()
        for key in self.client.scan_iter("*:written"):
            found.update({what.decode(): int(n) for what, n in self.client.hgetall(key).items()})
        return found


def fence(token, name="flights"):
    return Fence(name, token)


def batch(number, query="q1", parts=2):
    return Batch(query, number, parts)

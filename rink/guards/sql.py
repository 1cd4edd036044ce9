"""A guard of a database: a part's rows and its mark are one transaction, which ends with a look at
the fence.

Order within a part: what the user writes; the mark; the fence last, `FOR SHARE`, just before the
commit. So parts run side by side, and raising the fence waits only for those that are committing;
any other finds the greater token at its end. A part that is frozen has no lock of ours: whoever
follows does not wait for it, unless both write the same rows. Of two attempts of one part the
second finds the mark at its end, and what it wrote is rolled back. SQLite has one writer at a time
(`BEGIN IMMEDIATE`): there raising waits for the part under way, which then was before it.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from rink.arguments import check_seconds
from rink.core.keys import check_name, encode
from rink.errors import ConfigError, UsageError
from rink.guards.guard import Guard, Part, check_told, cut_otherwise, not_begun
from rink.guards.processes import PerProcess
from rink.guards.sql_database import Database, explain, has_no_table, passes, read, shown
from rink.guards.values import Batch, Fence

IDLE_TIMEOUT_S = 60.0

_ENDS_A_TRANSACTION = re.compile(
    r"(?:^|;)\s*(?:commit|end|abort|begin|start\s+transaction|prepare\s+transaction|rollback(?!\s+(?:\w+\s+)?to\b))\b",
    re.IGNORECASE,
)


class SqlGuard(Guard):
    """Guards a database. The step of a part is SQLAlchemy's Connection, in a transaction that the
    guard ends.

    Its tables are `rink_fences`, `rink_queries` and `rink_marks`, made where they are not there;
    names in them are percent-encoded.

    Args:
        url: as SQLAlchemy takes it, of PostgreSQL or of a SQLite file. It is pickled with the
            guard, password and all.
        schema: where the guard's tables lie; None is the user's default. Not on SQLite.
        connect_args: for the driver's `connect`; they are pickled too.
        idle_timeout_s: so long a part may be between two statements before PostgreSQL ends its
            transaction: a frozen process would keep its locks for ever. 0 is for ever.
    """

    def __init__(
        self,
        url: str | sa.URL,
        *,
        schema: str | None = None,
        connect_args: Mapping[str, Any] | None = None,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
    ) -> None:
        parsed = read(url)
        if schema is not None:
            check_name("schema", schema)
        if schema is not None and parsed.get_backend_name() == "sqlite":
            raise ConfigError("SQLite has no schemas: leave schema out")
        self._url = parsed.render_as_string(hide_password=False)
        self._shown = shown(parsed)
        self._schema = schema
        self._connect_args = dict(connect_args or {})
        try:
            pickle.dumps(self._connect_args)
        except Exception as error:
            raise ConfigError(
                "connect_args cannot be pickled, and a guard goes to where parts are written: "
                f"{error}"
            ) from error
        self._idle_timeout_s = check_seconds("idle_timeout_s", idle_timeout_s)
        # Of its own, whoever has the same URL: a part may SET what then holds for its connection.
        self._own: PerProcess[Database] = PerProcess()
        self._own.ends_with(self, Database.close)

    def raise_fence(self, fence: Fence) -> None:  # noqa: D102 - as of Guard
        check_told(fence)
        with self._database().transaction() as connection:
            self._raise(connection, fence)

    def begin(self, fence: Fence, batch: Batch) -> None:  # noqa: D102
        check_told(fence, batch)
        database, query = self._database(), encode(batch.query)
        queries = database.tables.queries
        with database.transaction() as connection:
            self._raise(connection, fence)
            first = database.insert(queries).values(query=query, parts=batch.parts)
            connection.execute(first.on_conflict_do_nothing())
            stored = connection.scalar(sa.select(queries.c.parts).where(queries.c.query == query))
            if stored != batch.parts:
                raise cut_otherwise(batch, stored or 0, self._shown)

    def part(self, fence: Fence, batch: Batch, number: int) -> Part[sa.Connection]:  # noqa: D102
        return _SqlPart(self, fence, batch, number)

    def finish(self, fence: Fence, batch: Batch, results: Sequence[Any]) -> None:  # noqa: ARG002, D102
        check_told(fence, batch)
        with self._database().transaction() as connection:
            seen = self._seen(connection, fence, lock=False)
        if seen is not None and seen > fence.token:
            raise fence.stale(seen, self._shown)

    def close(self) -> None:  # noqa: D102
        if database := self._own.take():
            database.close()

    def __repr__(self) -> str:
        return f"<SqlGuard {self._shown}>"

    def _database(self) -> Database:
        def make() -> Database:
            return Database(read(self._url), self._schema, self._connect_args, self._idle_timeout_s)

        return self._own.get(make)

    def _seen(self, connection: sa.Connection, fence: Fence, *, lock: bool) -> int | None:
        """Return the token that counts. Who commits locks it; a part does not before: raising the
        fence would wait for it.
        """
        fences = self._database().tables.fences
        asked = sa.select(fences.c.token).where(fences.c.name == encode(fence.name))
        return connection.scalar(asked.with_for_update(read=True) if lock else asked)

    def _raise(self, connection: sa.Connection, fence: Fence) -> None:
        database, name = self._database(), encode(fence.name)
        fences = database.tables.fences
        insert = database.insert(fences).values(name=name, token=fence.token)
        raised = connection.scalar(
            insert.on_conflict_do_update(
                index_elements=[fences.c.name],
                set_={"token": insert.excluded.token},
                where=fences.c.token <= insert.excluded.token,
            ).returning(fences.c.token)
        )
        if raised is None:
            seen = connection.scalar(sa.select(fences.c.token).where(fences.c.name == name))
            raise fence.stale(seen or 0, self._shown)


class _SqlPart(Part[sa.Connection]):
    def __init__(self, guard: SqlGuard, fence: Fence, batch: Batch, number: int) -> None:
        super().__init__(fence, batch, number)
        self._guard = guard
        self._transaction: sa.RootTransaction | None = None
        self._may_commit = False

    def _open(self) -> sa.Connection | None:
        database = self._guard._database()  # noqa: SLF001 - of this module
        with database.told():
            connection = database.engine.connect()
            try:
                self._transaction = connection.begin()
                database.bound(connection)
                seen = self._first_look(connection)
                self._before(seen, self._guard._shown)  # noqa: SLF001
                self.written = self._marked(connection)
                if self._is_written():
                    connection.close()
                    return None
            except BaseException:
                connection.close()
                raise
        sa.event.listen(connection, "commit", self._refuse_commit)
        sa.event.listen(connection, "before_cursor_execute", self._refuse_words)
        return connection

    def _commit(self, step: sa.Connection) -> None:
        guard = self._guard
        try:
            with step:
                self._end(step)
        except sa.exc.SQLAlchemyError:
            with guard._database().told():  # noqa: SLF001
                if not self._may_commit:
                    self._refuse_stale()
                raise

    def _end(self, step: sa.Connection) -> None:
        transaction = self._transaction
        if (
            transaction is None
            or not transaction.is_active
            or step.get_transaction() is not transaction
        ):
            raise UsageError(
                "the part's transaction was ended inside the part; what was written after that "
                "is not kept. The guard ends it: leave the `with`"
            )
        is_mine = self._mark(step)
        self._before(self._guard._seen(step, self.fence, lock=True), self._guard._shown)  # noqa: SLF001
        if not is_mine:
            return  # another attempt of this part was first, and closing rolls this one back
        self._may_commit = True
        transaction.commit()

    def _refuse_stale(self) -> None:
        """Say so if the fence was raised: above READ COMMITTED this transaction cannot see it, and
        fails otherwise.
        """
        database = self._guard._database()  # noqa: SLF001
        with database.engine.connect() as connection:
            seen = self._guard._seen(connection, self.fence, lock=False)  # noqa: SLF001
        if seen is not None and seen > self.fence.token:
            raise self.fence.stale(seen, self._guard._shown)  # noqa: SLF001

    def _abandon(self, step: sa.Connection, error: BaseException) -> None:
        place = self._guard._shown  # noqa: SLF001
        try:
            step.close()
        except Exception:  # it rolls back by being closed, whatever was said of that
            step.invalidate()
        if isinstance(error, Exception) and passes(error):
            raise explain(error, place) from error

    def _first_look(self, connection: sa.Connection) -> int | None:
        try:
            return self._guard._seen(connection, self.fence, lock=False)  # noqa: SLF001
        except sa.exc.DBAPIError as error:
            # `begin` makes the tables: who writes parts needs no right to.
            if has_no_table(error):
                raise not_begun(self.fence, None, self._guard._shown) from error  # noqa: SLF001
            raise

    def _marked(self, connection: sa.Connection) -> int | None:
        marks = self._guard._database().tables.marks  # noqa: SLF001
        mine = (marks.c.query == encode(self.batch.query)) & (marks.c.part == self.number)
        return connection.scalar(sa.select(marks.c.batch).where(mine))

    def _mark(self, connection: sa.Connection) -> bool:
        """Mark the part as written; False if it was meanwhile."""
        database = self._guard._database()  # noqa: SLF001
        marks = database.tables.marks
        insert = database.insert(marks).values(
            query=encode(self.batch.query), part=self.number, batch=self.batch.number
        )
        marked = connection.scalar(
            insert.on_conflict_do_update(
                index_elements=[marks.c.query, marks.c.part],
                set_={"batch": insert.excluded.batch},
                where=marks.c.batch < insert.excluded.batch,
            ).returning(marks.c.batch)
        )
        return marked is not None

    def _refuse_commit(self, _: sa.Connection) -> None:
        if not self._may_commit:
            raise UsageError("the guard commits this part when it is left: do not commit in it")

    def _refuse_words(self, _: sa.Connection, __: Any, statement: str, *___: Any) -> None:
        if _ENDS_A_TRANSACTION.search(statement):
            raise UsageError(
                "the guard ends this part's transaction when it is left: do not begin, commit or "
                "roll back in it (a text in the statement that reads as if is refused, too: give "
                "it as a parameter)"
            )

"""Guard a database: write a part's rows and its mark in one transaction.

Invariant: a transaction commits only if the fence has its token at that moment. Within a part, the
order is: the user's writes, the mark, the lock of the fence (`FOR SHARE`), the commit. So parts run
in parallel, and raising the fence waits only for parts that are committing. Any other part finds
the greater token at its end. A frozen part holds no lock of the guard. So its successor waits for
it only if both write the same rows. If a part is attempted twice, the second attempt finds the mark
at its end, and is rolled back. SQLite has one writer at a time (`BEGIN IMMEDIATE`), so there,
raising the fence waits until the active part has ended.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from rink.arguments import check_seconds
from rink.core.keys import check_name, encode_name
from rink.errors import ConfigError, UsageError
from rink.guards.guard import Guard, Part, check_told, cut_otherwise, not_begun
from rink.guards.processes import PerProcess
from rink.guards.sql_database import Database, explain, has_no_table, passes, read, shown
from rink.guards.values import Batch, Fence

IDLE_TIMEOUT_S = 60.0

_ENDS_A_TRANSACTION = re.compile(
    r"(?:^|;)\s*(?:commit|end|abort|begin|start\s+transaction|prepare\s+transaction|"
    r"rollback(?!\s+(?:\w+\s+)?to\b))\b",
    re.IGNORECASE,
)


class SqlGuard(Guard):
    """Guard a database.

    The step of a part is SQLAlchemy's Connection, in a transaction that the guard ends. The guard
    makes its tables `rink_fences`, `rink_queries` and `rink_marks` if they are missing. Names in
    them are percent-encoded.

    Args:
        url: SQLAlchemy's URL of a PostgreSQL database or a SQLite file. It is pickled with the
            guard, including the password.
        schema: the schema of the guard's tables; None is the user's default. SQLite has none.
        connect_args: arguments for the driver's `connect`. They are pickled, too.
        idle_timeout_s: PostgreSQL ends a part's transaction after this many seconds without a
            statement. Otherwise a frozen process would keep its locks. 0 means no limit.
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
                "connect_args cannot be pickled, but a guard is sent to the processes that write "
                f"parts: {error}"
            ) from error
        self._idle_timeout_s = check_seconds("idle_timeout_s", idle_timeout_s)
        # Other guards of the same URL do not share the connections, since a SET in a part changes
        # its connection.
        self._own: PerProcess[Database] = PerProcess()
        self._own.ends_with(self, Database.close)

    def raise_fence(self, fence: Fence) -> None:  # noqa: D102 - see Guard
        check_told(fence)
        with self._database().transaction() as connection:
            self._raise(connection, fence)

    def begin(self, fence: Fence, batch: Batch) -> None:  # noqa: D102
        check_told(fence, batch)
        database, query = self._database(), encode_name(batch.query)
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

    def finish(self, fence: Fence, batch: Batch, results: object) -> None:  # noqa: ARG002, D102
        check_told(fence, batch)
        with self._database().transaction() as connection:
            self._refuse_stale(connection, fence)

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
        """Return the fence's current token; None before the first.

        Only a commit locks it. An earlier lock would make `raise_fence` wait for the whole part.
        """
        fences = self._database().tables.fences
        query = sa.select(fences.c.token).where(fences.c.name == encode_name(fence.name))
        return connection.scalar(query.with_for_update(read=True) if lock else query)

    def _refuse_stale(self, connection: sa.Connection, fence: Fence) -> None:
        seen = self._seen(connection, fence, lock=False)
        if seen is not None and seen > fence.token:
            raise fence.stale(seen, self._shown)

    def _raise(self, connection: sa.Connection, fence: Fence) -> None:
        database, name = self._database(), encode_name(fence.name)
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
        with database.explain_sql_errors():
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
        try:
            with step:
                self._end(step)
        except sa.exc.SQLAlchemyError:
            database = self._guard._database()  # noqa: SLF001
            with database.explain_sql_errors():
                if not self._may_commit:
                    # At isolation levels above READ COMMITTED, this transaction cannot see a raised
                    # fence. It fails with another error.
                    with database.engine.connect() as connection:
                        self._guard._refuse_stale(connection, self.fence)  # noqa: SLF001
                raise

    def _end(self, step: sa.Connection) -> None:
        transaction = self._transaction
        assert transaction is not None
        if not transaction.is_active or step.get_transaction() is not transaction:
            self._drop(step)
            raise UsageError(
                "the part's transaction was ended inside the part, and later writes are not "
                "kept. Let the guard end it: only leave the `with`"
            )
        is_mine = self._mark(step)
        seen = self._guard._seen(step, self.fence, lock=True)  # noqa: SLF001
        self._before(seen, self._guard._shown)  # noqa: SLF001
        if not is_mine:
            # Another attempt has written this part. Closing the connection rolls this one back.
            return
        self._may_commit = True
        transaction.commit()

    def _abandon(self, step: sa.Connection, error: BaseException) -> None:
        place = self._guard._shown  # noqa: SLF001
        assert self._transaction is not None
        try:
            if not self._transaction.is_active:
                self._drop(step)
            step.close()
        except Exception:  # an invalid connection is closed, and closing rolls back
            step.invalidate()
        if isinstance(error, Exception) and passes(error):
            raise explain(error, place) from error

    def _drop(self, step: sa.Connection) -> None:
        """Close the connection to the server, which rolls back the transaction.

        If a commit was refused, SQLAlchemy believes that the transaction has ended. It would return
        the connection to its pool with the transaction open, and the rows would stay locked.
        """
        if not step.closed:
            step.invalidate()

    def _first_look(self, connection: sa.Connection) -> int | None:
        try:
            return self._guard._seen(connection, self.fence, lock=False)  # noqa: SLF001
        except sa.exc.DBAPIError as error:
            # `begin` makes the tables. A process that only writes parts needs no right to do so.
            if has_no_table(error):
                raise not_begun(self.fence, None, self._guard._shown) from error  # noqa: SLF001
            raise

    def _marked(self, connection: sa.Connection) -> int | None:
        marks = self._guard._database().tables.marks  # noqa: SLF001
        mine = (marks.c.query == encode_name(self.batch.query)) & (marks.c.part == self.number)
        return connection.scalar(sa.select(marks.c.batch).where(mine))

    def _mark(self, connection: sa.Connection) -> bool:
        """Mark the part as written. Return False if it was marked meanwhile."""
        database = self._guard._database()  # noqa: SLF001
        marks = database.tables.marks
        insert = database.insert(marks).values(
            query=encode_name(self.batch.query), part=self.number, batch=self.batch.number
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
            raise UsageError("do not commit inside a part: the guard commits it when it is left")

    def _refuse_words(self, _: sa.Connection, __: Any, statement: str, *___: Any) -> None:
        if _ENDS_A_TRANSACTION.search(statement):
            raise UsageError(
                "do not begin, commit or roll back inside a part: the guard ends its transaction "
                "when it is left (a text in the statement that looks like it is refused, too: "
                "pass it as a parameter)"
            )

"""Define a SqlGuard's database: its engine, its tables, and its errors.

Only PostgreSQL and SQLite are supported: a guard depends on row locks, and these two are tested.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc, pool
from sqlalchemy.dialects import postgresql, sqlite

from rink.errors import ConfigError, RinkError, StateError
from rink.guards.errors import GuardError

BACKENDS = ("postgresql", "sqlite")

_MAKING_TABLES = 0x72696E6B
"""PostgreSQL's advisory lock for making the guard's tables, so that only one process makes them."""

FORMAT = 1
"""The version of the tables' layout. Every row has it."""

_PASSING = re.compile(r"08...|40...|53...|55P03|25P03|57...")
"""SQLSTATEs of temporary errors: connections, deadlocks and serialization, resources, locks,
timeouts, shutdowns.
"""

_REFUSED = re.compile("authentication|password|does not exist|no pg_hba", re.IGNORECASE)
_BUSY = re.compile("locked|busy", re.IGNORECASE)


class Tables:
    """Define the guard's tables.

    Names in them are percent-encoded, as in keys, since PostgreSQL accepts no NUL in a text, and
    collations change how texts compare.
    """

    def __init__(self, schema: str | None) -> None:
        self.metadata = sa.MetaData(schema=schema)
        self.fences = self._table(
            "rink_fences",
            sa.Column("name", sa.Text, primary_key=True),
            sa.Column("token", sa.BigInteger, nullable=False),
        )
        self.queries = self._table(
            "rink_queries",
            sa.Column("query", sa.Text, primary_key=True),
            sa.Column("parts", sa.Integer, nullable=False),
        )
        self.marks = self._table(
            "rink_marks",
            sa.Column("query", sa.Text, primary_key=True),
            sa.Column("part", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("batch", sa.BigInteger, nullable=False),
        )

    def _table(self, name: str, *columns: sa.Column[Any]) -> sa.Table:
        layout = sa.Column("format", sa.SmallInteger, nullable=False, server_default=str(FORMAT))
        return sa.Table(name, self.metadata, *columns, layout)


class Database:
    """Hold one process's engine, and make the guard's tables."""

    def __init__(
        self,
        url: sa.URL,
        schema: str | None,
        connect_args: Mapping[str, Any],
        idle_timeout_s: float,
    ) -> None:
        self.place = shown(url)
        self.is_sqlite = url.get_backend_name() == "sqlite"
        self.tables = Tables(schema)
        self._idle_timeout_s = idle_timeout_s
        self._are_made = False
        self._making = threading.Lock()
        self.engine = _engine(url, connect_args, is_sqlite=self.is_sqlite)

    @contextlib.contextmanager
    def explain_sql_errors(self) -> Iterator[None]:
        """Translate errors of SQLAlchemy inside the block to Rink's errors."""
        try:
            yield
        except (exc.SQLAlchemyError, OSError) as error:
            raise explain(error, self.place) from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Yield a connection in a transaction, after making the tables."""
        with self.explain_sql_errors():
            self._make_tables()
            with self.engine.begin() as connection:
                self.bound(connection)
                yield connection

    def bound(self, connection: sa.Connection) -> None:
        """Make PostgreSQL end this transaction if it is idle for too long."""
        if not self.is_sqlite and self._idle_timeout_s:
            milliseconds = str(max(1, round(self._idle_timeout_s * 1000)))
            setting = sa.func.set_config("idle_in_transaction_session_timeout", milliseconds, True)
            connection.execute(sa.select(setting))

    def insert(self, table: sa.Table) -> Any:
        """Return an INSERT statement that supports ON CONFLICT."""
        return sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()

    def _make_tables(self) -> None:
        if self._are_made:
            return
        with self._making:
            with self.engine.begin() as connection:
                if not self.is_sqlite:  # on SQLite, BEGIN IMMEDIATE locks already
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MAKING_TABLES)))
                self.tables.metadata.create_all(connection, checkfirst=True)
                self._look_at(connection)
            self._are_made = True  # only now: the commit may have failed

    def _look_at(self, connection: sa.Connection) -> None:
        inspector = sa.inspect(connection)
        for table in self.tables.metadata.tables.values():
            columns = inspector.get_columns(table.name, schema=table.schema)
            names = {column["name"] for column in columns}
            if names | {"format"} >= {column.name for column in table.columns}:
                self._check_format(connection, table, has_it="format" in names)
            else:
                raise StateError(
                    f"{self.place} has a table {table.fullname} with the columns "
                    f"{', '.join(sorted(names))}, which is not the guard's. Rename it, or give "
                    "the guard another schema",
                    key=table.fullname,
                )

    def _check_format(self, connection: sa.Connection, table: sa.Table, *, has_it: bool) -> None:
        has = "no column format"
        if has_it:
            others = sa.select(table.c.format).where(table.c.format != FORMAT)
            other = connection.scalar(others.limit(1))
            if other is None:
                return
            has = f"rows of format {other}"
        raise StateError(
            f"{self.place}: table {table.fullname} has {has}, but this version of Rink reads "
            f"format {FORMAT}: another version wrote it. Finish its work with that version, then "
            "run DROP TABLE "
            + ", ".join(each.fullname for each in self.tables.metadata.tables.values()),
            key=table.fullname,
        )


def read(url: object) -> sa.URL:
    """Parse a URL, and check that a guard can use it.

    Raises:
        ConfigError: the URL cannot be used; the message never has its password.
    """
    try:
        parsed = sa.make_url(url)  # type: ignore[arg-type]
    except (exc.ArgumentError, ValueError):
        raise ConfigError(
            "the URL of the database cannot be read: write it as "
            "postgresql+psycopg://user:password@host/database or sqlite:////path/to/file "
            "(SQLAlchemy's form)"
        ) from None
    if parsed.get_backend_name() not in BACKENDS:
        raise ConfigError(
            f"{shown(parsed)}: SqlGuard supports only postgresql:// and sqlite:// URLs"
        )
    try:
        dialect = parsed.get_dialect()
        dialect.import_dbapi()
    except (exc.NoSuchModuleError, ImportError) as error:
        raise ConfigError(
            f"{shown(parsed)}: its driver cannot be imported ({error}): install it, or name "
            "another driver, such as postgresql+psycopg://"
        ) from error
    if dialect.is_async:
        raise ConfigError(
            f"{shown(parsed)}: {parsed.drivername} is for asyncio: name a blocking driver"
        )
    if parsed.get_backend_name() == "sqlite" and (
        parsed.database in {None, "", ":memory:"} or "memory" in str(parsed.query.get("mode", ""))
    ):
        raise ConfigError(f"{shown(parsed)}: each process would have its own database: name a file")
    return parsed


def shown(url: sa.URL) -> str:
    """Return a URL for messages, without its password and query."""
    # A query may hold a password, too.
    return url.set(query={}).render_as_string(hide_password=True)


def explain(error: Exception, place: str) -> RinkError:
    """Return Rink's error for an error of SQLAlchemy."""
    if isinstance(error, RinkError):
        return error
    cause = error.orig if isinstance(error, exc.DBAPIError) and error.orig is not None else error
    what = (str(cause).strip() or type(cause).__name__).splitlines()[0]
    if not passes(error):
        return GuardError(f"{place}: {what}", place=place)
    return GuardError(
        f"{place}: {what}. The transaction was rolled back, or its commit was not confirmed. Call "
        "it again: nothing is written twice",
        place=place,
        again=True,
    )


def passes(error: BaseException) -> bool:
    """Return whether the same call may succeed if it is repeated."""
    if isinstance(error, exc.TimeoutError):
        return True
    if not isinstance(error, exc.DBAPIError):
        return False
    if state := _sqlstate(error):
        return _PASSING.fullmatch(state) is not None
    if getattr(error.orig, "sqlite_errorname", None):
        return _BUSY.search(str(error.orig)) is not None
    return error.connection_invalidated or (
        isinstance(error, exc.OperationalError) and not _REFUSED.search(str(error.orig))
    )


def has_no_table(error: exc.DBAPIError) -> bool:
    """Return whether the error means that the guard's tables are missing."""
    return _sqlstate(error) == "42P01" or "no such table" in str(error.orig)


def _sqlstate(error: exc.DBAPIError) -> Any:
    return getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)


_LIBPQ = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Settings to give up a dead connection after about half a minute. The default is two hours, and
the writer would keep its role that long.
"""


def _engine(url: sa.URL, connect_args: Mapping[str, Any], *, is_sqlite: bool) -> sa.Engine:
    if not is_sqlite:
        bounds = _LIBPQ if url.get_driver_name() in ("psycopg", "psycopg2") else {}
        defaults = {name: value for name, value in bounds.items() if name not in url.query}
        return sa.create_engine(
            url, connect_args={**defaults, **connect_args}, pool_pre_ping=True, max_overflow=-1
        )
    engine = sa.create_engine(
        url, connect_args={"timeout": 30.0, **connect_args}, poolclass=pool.NullPool
    )

    # Python's sqlite3 would begin transactions by itself and without the lock. So switch that off,
    # and begin them here.
    @sa.event.listens_for(engine, "connect")
    def ours_to_begin(connection: Any, _: object) -> None:
        connection.isolation_level = None

    @sa.event.listens_for(engine, "begin")
    def begin_with_the_lock(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine

"""Test the refusals of a SqlGuard.

It refuses URLs, transactions that users end, foreign tables, and a database that is away.
"""

import sqlite3
import threading
from collections import Counter
from contextlib import closing

import pytest
import sqlalchemy as sa
from guards_worlds import SqliteWorld, batch, fence

from rink.errors import ConfigError, StaleToken, StateError, UsageError
from rink.guards import GuardError, SqlGuard
from rink.guards.sql_database import _engine, explain, passes


@pytest.fixture
def world(tmp_path):
    made = SqliteWorld(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        None,
        7,
        "flights.db",
        "mysql://u:secret@h/d",
        "postgresql+asyncpg://u:secret@h/d",
        "postgresql+nonsense://u:secret@h/d",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:x?mode=memory&uri=true",
    ],
)
def test_url_that_cannot_be_used_is_refused_without_its_password(url):
    with pytest.raises(ConfigError) as caught:
        SqlGuard(url)
    assert "secret" not in str(caught.value)


def test_settings_that_cannot_be_used_are_refused():
    url = "sqlite:////tmp/x.db"
    for settings in (
        {"schema": "s"},
        {"schema": 7},
        {"connect_args": {"lock": threading.Lock()}},
        {"idle_timeout_s": -1},
    ):
        with pytest.raises(ConfigError):
            SqlGuard(url, **settings)


def test_no_password_is_shown():
    guard = SqlGuard(
        "postgresql+psycopg://u:secret@127.0.0.1:1/d?password=secret&connect_timeout=2"
    )
    with pytest.raises(GuardError, match=r"127\.0\.0\.1") as caught:
        guard.raise_fence(fence(1))
    assert caught.value.again
    assert "secret" not in str(caught.value) + repr(guard) + caught.value.place
    guard.close()


def test_file_that_cannot_be_opened_is_said(tmp_path):
    (tmp_path / "text.db").write_text("no database " * 100)
    for name in ("away/data.db", "text.db"):
        with SqlGuard(f"sqlite:///{tmp_path}/{name}") as guard:
            with pytest.raises(GuardError, match=name) as caught:
                guard.raise_fence(fence(1))
            assert not caught.value.again


@pytest.mark.parametrize(
    "change", ["ALTER TABLE {} DROP COLUMN format", "UPDATE {} SET format = 2"]
)
@pytest.mark.parametrize("table", ["rink_fences", "rink_queries", "rink_marks"])
def test_tables_of_another_format_are_refused_and_removed_as_told(world, table, change):
    def write():
        world.guard.begin(fence(5), batch(0, parts=1))
        with world.guard.part(fence(5), batch(0, parts=1), 0) as step:
            return step is not None

    assert write()
    world.guard.close()
    with closing(sqlite3.connect(world.path)) as other:
        other.execute(change.format(table))
        other.commit()
    with pytest.raises(
        StateError, match=f"table {table} has .*, but this version of Rink"
    ) as caught:
        write()
    assert caught.value.key == table
    drop = str(caught.value).partition("then run ")[2]
    with closing(sqlite3.connect(world.path)) as other:
        for name in drop.removeprefix("DROP TABLE ").split(", "):  # SQLite drops one at a time
            other.execute(f"DROP TABLE {name}")
    assert write()


def test_tables_of_others_are_not_touched(world):
    with closing(sqlite3.connect(world.path)) as other, other:
        other.execute("CREATE TABLE rink_marks (id INTEGER)")
    with pytest.raises(StateError, match="rink_marks"):
        world.guard.raise_fence(fence(1))


def commits(step):
    step.commit()


def commits_in_words(step):
    step.execute(sa.text("  commit"))


def commits_in_words_of_the_driver(step):
    step.exec_driver_sql("END")


def see_it_refused(world, ends, told):
    """Check that a part that ends its transaction writes nothing.

    It can be written afterwards.
    """
    world.guard.begin(fence(1), batch(0))
    with (  # noqa: PT012
        pytest.raises(UsageError, match=told),
        world.guard.part(fence(1), batch(0), 0) as step,
    ):
        world.write(step, batch(0), 0)
        ends(step)
    assert world.contents() == Counter()
    world.write_batch(fence(1), batch(0))
    assert world.contents() == world.whole(batch(0))


def commits_its_transaction(step):
    step.get_transaction().commit()


def rolls_back_in_words(step):
    step.exec_driver_sql("ROLLBACK")


def begins(step):
    step.exec_driver_sql("BEGIN")


@pytest.mark.parametrize(
    "ends",
    [
        commits,
        commits_in_words,
        commits_in_words_of_the_driver,
        commits_its_transaction,
        rolls_back_in_words,
        begins,
    ],
)
def test_ending_the_transaction_in_a_part_is_refused_and_writes_nothing(world, ends):
    see_it_refused(world, ends, "the guard")


def swallowed_commit(step):
    with pytest.raises(UsageError):
        step.commit()


def rollback(step):
    step.rollback()


def close(step):
    step.close()


@pytest.mark.parametrize("ends", [swallowed_commit, rollback, close])
def test_transaction_that_was_ended_is_found_at_the_end(world, ends):
    see_it_refused(world, ends, "ended inside")


def test_savepoints_are_the_users(world):
    world.guard.begin(fence(1), batch(0))
    with world.guard.part(fence(1), batch(0), 0) as step:
        world.write(step, batch(0), 0)
        inner = step.begin_nested()
        world.write(step, batch(7), 0)
        inner.rollback()
        with step.begin_nested():
            world.write(step, batch(0), 1)
    assert world.contents() == world.whole(batch(0))


def test_database_that_others_keep_is_said_to_be_busy(world):
    busy = SqlGuard(f"sqlite:///{world.path}", connect_args={"timeout": 0.01})
    world.guard.begin(fence(1), batch(0))
    with (
        world.guard.part(fence(1), batch(0), 0),
        pytest.raises(GuardError, match="locked") as caught,
    ):
        busy.raise_fence(fence(2))
    assert caught.value.again
    busy.raise_fence(fence(2))
    busy.close()


def test_tables_whose_commit_failed_are_made_by_the_next_call(tmp_path):
    path = tmp_path / "read.db"  # without WAL, so a reader lets no commit through
    guard = SqlGuard(f"sqlite:///{path}", connect_args={"timeout": 0.01})
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("CREATE TABLE mine (number)")
        reader.execute("BEGIN").execute("SELECT * FROM mine").fetchone()
        with pytest.raises(GuardError, match="locked") as caught:
            guard.raise_fence(fence(1))
        assert caught.value.again
    guard.raise_fence(fence(1))
    guard.close()


def test_error_of_the_user_is_the_users(world):
    world.guard.begin(fence(1), batch(0))
    with (  # noqa: PT012
        pytest.raises(sa.exc.OperationalError, match="no such table"),
        world.guard.part(fence(1), batch(0), 0) as step,
    ):
        world.write(step, batch(0), 0)
        step.exec_driver_sql("SELECT * FROM not_there")
    assert world.contents() == Counter()


class Said(Exception):  # noqa: N818 - what a driver raises
    def __init__(self, sqlstate):
        super().__init__("what the server said")
        self.sqlstate = sqlstate


@pytest.mark.parametrize(
    ("state", "again"),
    [
        ("40001", True), ("40P01", True), ("57P01", True), ("08006", True), ("55P03", True),
        ("25P03", True), ("42501", False), ("28P01", False), ("23505", False),
    ],
)  # fmt: skip
def test_what_passes_is_said_to_be_worth_another_try(state, again):
    error = sa.exc.DBAPIError("SELECT", {"password": "secret"}, Said(state))
    assert passes(error) is again
    told = explain(error, "place")
    assert told.again is again
    assert "secret" not in str(told)


def test_raising_inside_a_part_waits_and_the_part_was_before_it(world):
    world.guard.begin(fence(1), batch(0))
    raised = threading.Thread(target=world.guard.raise_fence, args=(fence(2),))
    with world.guard.part(fence(1), batch(0), 0) as step:
        raised.start()
        world.write(step, batch(0), 0)
    raised.join(30)
    with pytest.raises(StaleToken):
        world.guard.begin(fence(1), batch(1))
    assert sum(world.contents().values()) == 1


def test_wire_to_postgres_that_is_dead_is_not_waited_for_for_hours():
    url = sa.make_url("postgresql+psycopg://db.example/flights?connect_timeout=3")
    engine = _engine(url, {"keepalives_idle": 1}, is_sqlite=False)
    given = {}

    @sa.event.listens_for(engine, "do_connect")
    def look(_dialect, _record, _args, told):
        given.update(told)
        raise ConnectionRefusedError

    with pytest.raises(ConnectionRefusedError):
        engine.connect()
    assert int(given["connect_timeout"]) == 3, "what the URL says counts"
    assert given["keepalives_idle"] == 1, "and connect_args"
    assert (given["keepalives_interval"], given["keepalives_count"]) == (5, 3)
    assert given["tcp_user_timeout"] == 30_000

"""Test the statements of examples/sidecar/fence.sql on a real PostgreSQL."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sqlalchemy as sa

FENCE = Path(__file__).parents[2] / "examples" / "sidecar" / "fence.sql"
CREATE, RAISE, CHECK = [
    sa.text(part)
    for part in re.sub("--.*", "", FENCE.read_text(encoding="utf-8")).split(";")
    if part.strip()
]


@pytest.fixture
def connect(postgres):
    """Open connections, each in a transaction, to tables of the test's own."""
    engine = sa.create_engine(postgres.url, poolclass=sa.pool.NullPool)
    made = []

    def connect():
        made.append(engine.connect())
        made[-1].execute(sa.text("SET lock_timeout = 500"))
        made[-1].commit()
        return made[-1]

    with connect() as first:
        first.execute(sa.text("DROP TABLE IF EXISTS fences, totals"))
        first.execute(CREATE)
        first.execute(CREATE)  # may be repeated
        first.execute(sa.text("CREATE TABLE totals (total BIGINT NOT NULL)"))
        first.commit()
    yield connect
    for connection in made:
        connection.close()
    engine.dispose()


def ask(connection, statement, token):
    """Return the token that a statement gives, or None."""
    return connection.execute(statement, {"role": "job-17", "token": token}).scalar()


def write(connection, total):
    connection.execute(sa.text("INSERT INTO totals VALUES (:total)"), {"total": total})


def test_fence_raise_refuses_smaller_tokens(connect):
    with connect() as holder:
        asked = [ask(holder, RAISE, token) for token in (5, 5, 9, 5, 9)]
        assert asked == [5, 5, 9, None, 9]


def test_fence_check_without_raise_refuses(connect):
    with connect() as holder:
        assert ask(holder, CHECK, 5) is None
        ask(holder, RAISE, 5)
        assert [ask(holder, CHECK, token) for token in (4, 5, 6)] == [None, 5, None]


def test_fence_refuses_a_transaction_that_began_earlier(connect):
    """The old holder was frozen in its transaction; the new one does not wait."""
    with connect() as old, connect() as new:
        ask(old, RAISE, 5)
        old.commit()
        write(old, 1)
        assert ask(new, RAISE, 6) == 6
        new.commit()
        assert ask(old, CHECK, 5) is None
        old.rollback()
        assert new.execute(sa.text("SELECT count(*) FROM totals")).scalar() == 0


def test_fence_raise_waits_for_a_transaction_that_commits(connect):
    """Writes that passed the check are committed before the new holder reads."""
    with connect() as old, connect() as new:
        ask(old, RAISE, 5)
        old.commit()
        write(old, 1)
        assert ask(old, CHECK, 5) == 5
        with pytest.raises(sa.exc.OperationalError, match="lock timeout"):
            ask(new, RAISE, 6)
        new.rollback()
        old.commit()
        assert ask(new, RAISE, 6) == 6
        assert new.execute(sa.text("SELECT count(*) FROM totals")).scalar() == 1


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_fence_check_above_read_committed_fails(connect, isolation):
    """There, the old holder does not see the row as it is now."""
    with connect() as old, connect() as new:
        ask(old, RAISE, 5)
        old.commit()
        old.execute(sa.text(f"SET TRANSACTION ISOLATION LEVEL {isolation}"))
        write(old, 1)
        ask(new, RAISE, 6)
        new.commit()
        with pytest.raises(sa.exc.OperationalError, match="could not serialize"):
            ask(old, CHECK, 5)

"""Test what only a database has.

These are locks, deadlocks, lost connections, isolation levels and idle transactions.
"""

import contextlib
import operator
import threading
import time
from collections import Counter

import pytest
import sqlalchemy as sa
from guards_worlds import batch, fence

from rink.errors import StaleToken, UsageError
from rink.guards import GuardError, SqlGuard


@pytest.fixture
def world(clean):
    return clean("postgres")


def end_all_others(world):
    with world.engine.connect() as connection:
        connection.execute(
            sa.text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> "
                "pg_backend_pid() AND usename = 'rink'"
            )
        )


def test_raising_the_fence_waits_only_for_parts_that_commit(world):
    world.guard.begin(fence(5), batch(0))
    with pytest.raises(StaleToken), world.guard.part(fence(5), batch(0), 0) as step:  # noqa: PT012
        world.write(step, batch(0), 0)
        began = time.monotonic()
        world.guard.raise_fence(fence(6))
        assert time.monotonic() - began < 5
    part = world.guard.part(fence(6), batch(0), 0)
    raised = threading.Thread(target=world.guard.raise_fence, args=(fence(7),))
    with part as step:
        world.write(step, batch(0), 0)
        # As the guard does just before it commits.
        world.guard._seen(step, fence(6), lock=True)
        raised.start()
        raised.join(0.5)
        assert raised.is_alive()
    raised.join(60)
    assert sum(world.contents().values()) == 1
    with pytest.raises(StaleToken):
        world.guard.begin(fence(6), batch(1))


def test_parts_are_committed_side_by_side(world):
    world.guard.begin(fence(5), batch(0))
    with (
        world.guard.part(fence(5), batch(0), 0) as one,
        world.guard.part(fence(5), batch(0), 1) as two,
    ):
        for number, step in enumerate((one, two)):
            world.write(step, batch(0), number)
            world.guard._seen(step, fence(5), lock=True)
    assert world.contents() == world.whole(batch(0))


def test_part_that_is_frozen_does_not_keep_the_next_driver(world):
    world.guard.begin(fence(5), batch(0))
    with pytest.raises(StaleToken), world.guard.part(fence(5), batch(0), 0) as step:  # noqa: PT012
        world.write(step, batch(0), 0)
        began = time.monotonic()
        world.write_batch(fence(6), batch(0))
        assert time.monotonic() - began < 20
    assert world.contents() == world.whole(batch(0))


def test_connection_that_is_lost_is_worth_another_try(world):
    world.guard.begin(fence(5), batch(0))
    part = world.guard.part(fence(5), batch(0), 0)
    with pytest.raises(GuardError) as caught, part as step:  # noqa: PT012
        world.write(step, batch(0), 0)
        end_all_others(world)
    assert caught.value.again
    part = world.guard.part(fence(5), batch(0), 0)
    with pytest.raises(GuardError) as caught, part as step:  # noqa: PT012
        end_all_others(world)
        world.write(step, batch(0), 0)
    assert caught.value.again
    assert world.contents() == Counter()
    world.write_batch(fence(5), batch(0))
    assert world.contents() == world.whole(batch(0))


def test_commit_whose_answer_is_lost_is_found(world, monkeypatch):
    world.guard.begin(fence(5), batch(0))
    real = sa.engine.RootTransaction.commit

    def cut(transaction):
        real(transaction)
        raise sa.exc.OperationalError("COMMIT", {}, Exception("server closed the connection"))

    with monkeypatch.context() as patch:
        part = world.guard.part(fence(5), batch(0), 0)
        found = pytest.raises(GuardError, match="its commit was not confirmed")
        with found as caught, part as step:
            world.write(step, batch(0), 0)
            patch.setattr(sa.engine.RootTransaction, "commit", cut)
    assert caught.value.again
    with world.guard.part(fence(5), batch(0), 0) as step:
        assert step is None
    assert sum(world.contents().values()) == 1


def test_deadlock_is_worth_another_try(world):
    with world.engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS rows"))
        connection.execute(sa.text("CREATE TABLE rows (n INT)"))
        connection.execute(sa.text("INSERT INTO rows VALUES (0), (1)"))
    world.guard.begin(fence(5), batch(0))
    both, errors = threading.Barrier(2), []

    def run(number):
        try:
            with world.guard.part(fence(5), batch(0), number) as step:
                step.execute(sa.text(f"UPDATE rows SET n = n WHERE n = {number}"))
                both.wait(60)
                step.execute(sa.text(f"UPDATE rows SET n = n WHERE n = {1 - number}"))
        except GuardError as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    [error] = errors
    assert error.again
    assert "deadlock" in str(error)


def test_part_that_says_nothing_for_long_is_ended_by_the_server(world):
    guard = SqlGuard(world.guard._url, schema=world.guard._schema, idle_timeout_s=1.0)
    guard.begin(fence(5), batch(0))
    part = guard.part(fence(5), batch(0), 0)
    with pytest.raises(GuardError) as caught, part as step:  # noqa: PT012
        world.write(step, batch(0), 0)
        time.sleep(2.5)
    assert caught.value.again
    assert world.contents() == Counter()
    guard.close()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_fence_holds_in_other_isolation_levels(world, level):
    options = {"options": f"-c default_transaction_isolation={level.replace(' ', chr(92) + ' ')}"}
    guard = SqlGuard(world.guard._url, schema=world.guard._schema, connect_args=options)
    guard.begin(fence(5), batch(0))
    with (  # noqa: PT012
        pytest.raises((StaleToken, GuardError)) as caught,
        guard.part(fence(5), batch(0), 0) as step,
    ):
        world.write(step, batch(0), 0)
        world.guard.raise_fence(fence(6))
    assert isinstance(caught.value, StaleToken)
    assert world.contents() == Counter()
    guard.close()


def test_statement_that_failed_and_was_swallowed_is_no_part(world):
    """PostgreSQL turns a commit of such a transaction into a silent rollback."""
    world.guard.begin(fence(5), batch(0))
    with (  # noqa: PT012
        pytest.raises(GuardError, match="aborted"),
        world.guard.part(fence(5), batch(0), 0) as step,
    ):
        world.write(step, batch(0), 0)
        with pytest.raises(sa.exc.ProgrammingError):
            step.exec_driver_sql("SELECT * FROM not_there")
    with world.guard.part(fence(5), batch(0), 0) as step:
        assert step is not None


@pytest.mark.parametrize("swallowed", [False, True])
@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
@pytest.mark.parametrize("whose", [lambda step: step, sa.Connection.get_transaction])
def test_transaction_that_a_step_ends_keeps_no_row_locked(world, whose, end, swallowed):
    """A connection goes back without a transaction, also after a commit."""
    world.guard.begin(fence(5), batch(0))
    part = world.guard.part(fence(5), batch(0), 0)
    with pytest.raises((UsageError, GuardError)), part as step:  # noqa: PT012
        world.write(step, batch(0), 0)
        refused = contextlib.suppress(UsageError) if swallowed else contextlib.nullcontext()
        with refused:
            operator.methodcaller(end)(whose(step))
    with world.engine.connect() as other:
        idle = sa.text("SELECT 1 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'")
        end = time.monotonic() + 60
        while list(other.scalars(idle)):  # the process of a closed connection ends by itself
            assert time.monotonic() < end
            other.rollback()  # statistics stay as they are within a transaction
            time.sleep(0.02)
    with world.guard.part(fence(5), batch(0), 0) as step:
        world.write(step, batch(0), 0)
    assert sum(world.contents().values()) == 1


def test_tables_are_made_by_many_at_once(world):
    guards = [SqlGuard(world.guard._url, schema=world.guard._schema) for _ in range(8)]
    errors = []

    def begin(guard):
        try:
            guard.begin(fence(5), batch(0))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=begin, args=(guard,)) for guard in guards]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    for guard in guards:
        guard.close()


def test_what_may_not_be_done_is_said_without_a_password(world):
    wrong = world.guard._url.replace("secret", "wr0ng")
    guard = SqlGuard(wrong)
    with pytest.raises(GuardError, match="authentication") as caught:
        guard.raise_fence(fence(1))
    assert not caught.value.again
    assert "wr0ng" not in str(caught.value)
    guard.close()
    with (
        SqlGuard(world.guard._url, schema="nowhere") as guard,
        pytest.raises(GuardError, match="nowhere"),
    ):
        guard.raise_fence(fence(1))

"""Test a query as a group of its stream, on a real Redis without Spark.

The tests are about what is kept, refused and noticed.
"""

import asyncio
import contextlib
import re
import shlex
import sys
import types

import attrs
import pytest
from click.testing import CliRunner
from spark_support import COUNT, Shop, edges

from rink.cli import apps
from rink.cli.commands import commands
from rink.errors import StaleToken, StateError
from rink.redis.blocking_client import run_scripts
from rink.redis.scripts import ScriptCall
from rink.spark import redis_connection
from rink.spark.datasource import RinkDataSource
from rink.spark.source import readers
from rink.streams import App, Record, admin
from rink.streams.retention import Retention
from rink.streams.store.scripts import script
from rink.streams.store.values import PartitionBounds


@pytest.fixture
def shop(rink_redis):
    with contextlib.closing(Shop(rink_redis.url)) as made:
        yield made


# ── a new checkpoint ─────────────────────────────────────────────────────────────────────────────


def test_query_begins_at_earliest_latest_or_the_entry_up_to_an_id(shop):
    first, second, third = shop.add(count=3)
    assert shop.group("a").begin(edges("earliest"))[0] == "0-0"
    assert shop.group("b").begin(edges("latest"))[0] == third
    assert shop.group("c").begin(edges(second))[0] == second
    between = f"{second.partition('-')[0]}-99999"
    assert shop.group("d").begin(edges(between))[0] in (second, third)
    assert shop.group("e").begin(edges(f"({first}"))[0] == "0-0"
    assert shop.group("f").begin(edges("latest"))[1] == "0-0"  # an empty partition


def test_trimming_waits_for_a_query_from_its_first_moment(shop):
    ids = shop.add(count=5)
    shop.hold("bill", at=ids[-1])
    shop.group().begin(edges("earliest"))
    other = shop.group("other")
    other.follow(other.begin(edges("latest")) | {0: ids[3]})
    assert shop.ids() == ids


class Sender:
    """A sender to a partition with room for ten events, kept for a week."""

    def __init__(self, shop):
        self._shop, self._calls = shop, 0
        self._bounds = PartitionBounds(10, retention=Retention(7 * 86_400_000))

    def send(self, count):
        """Return how many of so many events found room."""
        self._calls += 1
        names = self._shop.names.partition(0)
        keys = (*names.keys, names.sent("a test"))
        args = {"number": str(self._calls), "wants_ids": False, "bounds": self._bounds.args}
        call = ScriptCall(script("append"), keys, args, [b"{}"] * count)
        return self._shop.redis.execute_command(*call.eval())[0]


def test_query_that_replays_what_is_kept_holds_no_sender_back(shop):
    """This holds for a query that begins, and for an older checkpoint."""
    sender = Sender(shop)
    group = shop.group()
    group.follow(group.begin(edges("latest")))
    for _ in range(3):
        assert sender.send(20) == 10
        assert sender.send(1) == 0
        group.advance(edges("0-0") | {0: shop.ids()[-1]})
    assert len(shop.ids()) == 30
    other = shop.group("other")
    other.follow(other.begin(edges("earliest")))
    assert sender.send(20) == 10
    assert sender.send(1) == 0
    other.advance(edges("0-0") | {0: shop.ids()[-1]})
    group.advance(edges("0-0") | {0: shop.ids()[-1]})
    shop.group().follow(edges("0-0") | {0: shop.ids()[4]})
    assert sender.send(20) == 10
    assert sender.send(1) == 0
    assert len(shop.ids()) == 50


class Order(Record):
    order_id: int


def of_an_app(shop, monkeypatch, **keep):
    """Give the group the app, which says how long events stay."""
    module = types.ModuleType("steps_shop")
    module.app = App("shop", redis=shop.url)
    module.app.stream(
        "orders", record=Order, partition_by="order_id", partition_count=COUNT, **keep
    )
    monkeypatch.setitem(sys.modules, "steps_shop", module)
    shop.place = attrs.evolve(shop.place, app="steps_shop:app")


@pytest.mark.parametrize("step", ["advance", "follow"])
@pytest.mark.parametrize("has_app", [True, False])
def test_query_trims_nothing_of_which_redis_lost_how_long_it_stays(
    shop, monkeypatch, step, has_app
):
    """Lose the hash with the retention, as a Redis that evicts may do.

    With an app, the query itself knows the retention.
    """
    if has_app:
        of_an_app(shop, monkeypatch, keep="7d")
    Sender(shop).send(10)
    group = shop.group()
    start = group.begin(edges("earliest"))
    group.follow(start)
    shop.redis.delete(shop.names.partition(0).kept)
    getattr(group, step)(edges("0-0") | {0: shop.ids()[-1]})
    assert len(shop.ids()) == 10
    if has_app:
        shop.redis.delete(shop.names.partition(0).segments)
        group.follow(edges("0-0") | {0: shop.ids()[-1]})
        assert len(shop.ids()) == 10


def test_asked_twice_it_begins_at_the_same_place(shop):
    shop.add(count=2)
    group = shop.group()
    first = group.begin(edges("latest"))
    shop.add(count=2)
    assert group.begin(edges("latest")) == first
    assert shop.group().begin(edges("latest")) == first  # a first start that died, and the next one


def test_query_begins_at_the_same_place_even_if_told_to_begin_elsewhere(shop):
    ids = shop.add(count=2)
    assert shop.group().begin(edges("latest"))[0] == ids[1]
    assert shop.group().begin(edges("earliest"))[0] == ids[1]


def test_new_checkpoint_on_a_group_that_has_advanced_is_refused(shop):
    ids = shop.add(count=2)
    group = shop.group()
    group.follow(group.begin(edges("earliest")))
    group.advance(edges("0-0") | {0: ids[1]})
    with pytest.raises(
        StateError,
        match=r"another checkpoint.*process .* forget-group MODULE:ATTR spark/q --stream orders`",
    ):
        shop.group().begin(edges("earliest"))


def test_command_that_forgets_a_group_can_be_pasted(shop, monkeypatch):
    """The command line itself parses it, with the names of the query."""
    asked = []

    async def forget_group(app, processor, **named):
        asked.append((app, processor, named))
        return ()

    monkeypatch.setattr(admin, "forget_group", forget_group)
    monkeypatch.setattr(apps, "load", App)
    monkeypatch.setattr(apps, "run", lambda _, work: asyncio.run(work()))
    of_an_app(shop, monkeypatch)
    ids = shop.add(count=2)
    group = shop.group("each day")
    group.follow(group.begin(edges("earliest")))
    group.advance(edges("0-0") | {0: ids[1]})
    with pytest.raises(StateError) as told:
        shop.group("each day").begin(edges("earliest"))
    (line,) = re.findall(r"`(rink .*)`", str(told.value))
    result = CliRunner().invoke(commands, shlex.split(line)[1:])
    assert result.exit_code == 0, result.output
    ((app, *rest),) = asked
    assert app.name == "steps_shop:app"
    assert rest == ["spark/each day", {"stream": "orders", "force": False}]


def test_name_that_a_processor_has_is_no_groups(shop):
    shop.redis.hset(shop.names.partition(0).offsets, mapping={"format": 1, "spark/q": "0-0"})
    with pytest.raises(StateError, match="a processor of the app"):
        shop.group().begin(edges("earliest"))
    with pytest.raises(StateError, match="a processor of the app"):
        shop.group().follow(edges("0-0"))


# ── what it follows ──────────────────────────────────────────────────────────────────────────────


def test_processed_entries_may_be_trimmed_but_not_the_one_at_the_offset(shop):
    ids = shop.add(count=4)
    group = shop.group()
    start = group.begin(edges("earliest"))
    assert group.follow(start)[0] == ids[3]
    group.advance(start | {0: ids[1]})
    assert shop.ids() == ids[1:]
    group.follow(start | {0: ids[3]})
    assert shop.ids() == ids[3:]
    assert shop.offset() == ids[3]


def test_commit_that_comes_late_changes_nothing(shop):
    ids = shop.add(count=4)
    group = shop.group()
    start = group.begin(edges("earliest"))
    group.follow(start)
    group.follow(start | {0: ids[2]})
    group.advance(start | {0: ids[1]})
    assert shop.offset() == ids[2]


def test_restart_takes_over_and_the_one_before_ends(shop):
    shop.add(count=2)
    before, after = shop.group(), shop.group()
    start = before.begin(edges("earliest"))
    before.follow(start)
    after.follow(start)
    with pytest.raises(
        StateError,
        match=r"another query reads .* as group 'spark/q': process .* reads a stream twice "
        r".*'group'",
    ):
        before.follow(start)
    after.follow(start)


def test_lower_token_is_refused_and_changes_nothing(shop):
    ids = shop.add(count=2)
    newer = shop.group(token=2**62 + 1)
    start = newer.begin(edges("earliest"))
    newer.follow(start)
    for stale in (shop.group(token=2**62), shop.group()):
        with pytest.raises(StaleToken) as told:
            stale.begin(edges("latest"))
        assert told.value.newer == 2**62 + 1
        with pytest.raises(StaleToken):
            stale.follow(start | {0: ids[1]})
        with pytest.raises(StaleToken):
            stale.advance(start | {0: ids[1]})
    assert shop.offset() == "0-0"
    newer.follow(start)


def test_driver_that_read_until_the_next_came_gets_stale_token(shop):
    shop.add(count=2)
    before, after = shop.group(token=1), shop.group(token=2)
    start = before.begin(edges("earliest"))
    before.follow(start)
    after.follow(start)
    with pytest.raises(StaleToken) as told:
        before.follow(start)
    assert (told.value.token, told.value.newer) == (1, 2)


def test_checkpoint_that_was_put_back_holds_trimming_back_again(shop):
    ids = shop.add(count=4)
    shop.hold("bill")
    group = shop.group()
    start = group.begin(edges("earliest"))
    group.follow(start | {0: ids[3]})
    again = shop.group()
    again.follow(start | {0: ids[1]})
    assert shop.offset() == ids[1]


def test_forgotten_group_returns_as_long_as_nothing_is_lost(shop):
    ids = shop.add(count=4)
    group = shop.group()
    group.follow(group.begin(edges("earliest")) | {0: ids[1]})
    names = shop.names.partition(0)
    shop.redis.hdel(names.offsets, "spark/q")
    shop.redis.delete(names.at("spark/q"))
    group.follow(edges("0-0") | {0: ids[1]})
    assert shop.offset() == ids[1]


def test_it_may_be_forgotten_while_it_runs(shop):
    ids = shop.add(count=4)
    group = shop.group(token=3)
    group.follow(group.begin(edges("earliest")) | {0: ids[1]})
    for number in range(3):
        names = shop.names.partition(number)
        shop.redis.hdel(names.offsets, "spark/q")
        shop.redis.delete(names.at("spark/q"))
    group.follow(edges("0-0") | {0: ids[2]})
    group.follow(edges("0-0") | {0: ids[3]})
    with pytest.raises(StaleToken):
        shop.group(token=2).follow(edges("0-0") | {0: ids[3]})


def test_of_two_readers_at_once_one_goes_on(shop):
    """Each claims partition by partition; the later reader gets all of them."""
    shop.add(count=2)
    one, other = shop.group(), shop.group()
    start = one.begin(edges("earliest"))
    plain = shop.connection.run_each

    def other_between(name, asked):
        found = plain(name, asked)
        if name == "source/enter":
            shop.connection.run_each = plain
            other.follow(start)
        return found

    shop.connection.run_each = other_between
    with pytest.raises(StateError, match="another query reads"):
        one.follow(start)
    other.follow(start)


# ── events that are gone ─────────────────────────────────────────────────────────────────────────


def test_start_whose_entry_is_gone_is_an_error(shop):
    ids = shop.add(count=4)
    group = shop.group()
    start = group.begin(edges("earliest")) | {0: ids[1]}
    group.follow(start)
    shop.trim(to=1)
    with pytest.raises(StateError, match=rf"partition 0 .* after {ids[1]} are gone"):
        group.follow(start)
    assert shop.offset() == ids[1]
    assert shop.group(strict=False).follow(start)[0] == ids[3]


def test_nothing_is_advanced_where_events_are_gone(shop):
    ids = shop.add(count=4)
    group = shop.group()
    start = group.begin(edges("earliest"))
    group.follow(start)
    shop.trim(to=1)
    with pytest.raises(StateError, match="are gone"):
        group.follow(start | {0: ids[2]})
    assert shop.offset() == "0-0"
    assert shop.group(strict=False).follow(start | {0: ids[2]})[0] == ids[3]
    assert shop.offset() == ids[2]


def test_so_are_events_of_a_partition_of_which_nothing_was_read(shop):
    shop.add(count=4)
    group = shop.group()
    start = group.begin(edges("earliest"))
    group.follow(start)
    shop.trim(to=1)
    with pytest.raises(StateError, match="after 0-0 are gone"):
        group.follow(start)


def test_trimming_before_a_query_registered_is_no_loss(shop):
    shop.add(count=4)
    shop.trim(to=2)
    group = shop.group()
    start = group.begin(edges("earliest"))
    assert group.follow(start)[0] == shop.ids()[-1]
    assert group.removed([0]) == {0: 2}
    shop.trim(to=0)
    late = shop.group("late")
    first = late.begin(edges("earliest"))
    late.follow(first)
    shop.add(count=1)
    late.follow(first)


def test_redis_that_lost_everything_is_an_error(shop):
    ids = shop.add(count=2)
    group = shop.group()
    start = group.begin(edges("earliest")) | {0: ids[1]}
    group.follow(start)
    shop.redis.flushall()
    with pytest.raises(StateError, match="are gone"):
        shop.group().follow(start)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_range_is_read_page_by_page_from_behind_its_start(shop, size):
    ids = shop.add(count=5)
    assert shop.read("0-0", ids[4], size=size, removed=0) == ids
    assert shop.read(ids[0], ids[3], size=size) == ids[1:4]
    assert shop.read(ids[3], ids[3], size=size) == []


def test_page_behind_an_entry_that_is_gone_is_an_error(shop):
    ids = shop.add(count=6)
    shop.trim(to=3)
    with pytest.raises(StateError, match=f"after {ids[0]} are gone"):
        shop.read(ids[0], ids[5])
    assert shop.read(ids[0], ids[5], strict=False) == ids[3:]


def test_trimming_in_the_midst_of_a_read_is_an_error(shop):
    ids = shop.add(count=6)
    plain = shop.connection.client.execute_command
    pages = []

    def trims_after_a_page(*command, **more):
        found = plain(*command, **more)
        if command[0] == "XRANGE":
            pages.append(command)
            shop.trim(to=1)
        return found

    shop.connection.client.execute_command = trims_after_a_page
    with pytest.raises(StateError, match=f"after {ids[2]} are gone"):
        shop.read(ids[0], ids[5])
    assert len(pages) == 2


def test_first_page_of_all_is_an_error_if_more_was_removed(shop):
    ids = shop.add(count=4)
    shop.trim(to=2)
    assert shop.read("0-0", ids[3], removed=2) == ids[2:]
    with pytest.raises(StateError, match="after 0-0 are gone"):
        shop.read("0-0", ids[3], removed=1)
    assert shop.read("0-0", ids[3], removed=1, strict=False) == ids[2:]


def test_range_of_which_nothing_is_left_is_an_error(shop):
    ids = shop.add(count=2)
    shop.redis.delete(shop.key())
    with pytest.raises(StateError, match="are gone"):
        shop.read("0-0", ids[1])
    assert shop.read(ids[0], ids[1], strict=False) == []


def test_all_partitions_have_a_place(shop):
    assert shop.connection.partition_count(shop.place) == COUNT


def test_redis_that_lacks_replicas_for_a_while_is_waited_for(rink_redis, monkeypatch):
    """Redis refuses single commands of a round trip, one for each partition."""
    with contextlib.closing(Shop(rink_redis.url, patience=30.0)) as shop:
        shop.add(count=2)
        sent = []

        def run(client, calls):
            sent.append(calls)
            if len(sent) == 3:
                shop.redis.config_set("min-replicas-to-write", 0)
            return run_scripts(client, calls)

        monkeypatch.setattr(redis_connection, "run_scripts", run)
        shop.redis.config_set("min-replicas-to-write", 1)
        try:
            assert shop.group().begin(edges("earliest")) == edges("0-0")
        finally:
            shop.redis.config_set("min-replicas-to-write", 0)
    assert len(sent) >= 3


# ── a checkpoint, and the group that it is older than ────────────────────────────────────────────


def test_checkpoint_older_than_its_group_is_told_as_such(shop):
    ids = shop.add(count=6)
    group = shop.group()
    start = group.begin(edges("earliest"))
    group.follow(start)
    group.advance(start | {0: ids[3]})
    with pytest.raises(StateError) as told:
        shop.group().follow(start | {0: ids[1]})
    text = str(told.value)
    assert "checkpoint of this query is older than its group 'spark/q'" in text
    assert f"after {ids[1]}, but the group has committed up to {ids[3]}" in text
    assert "rink streams forget-group MODULE:ATTR spark/q --stream orders" in text
    assert told.value.key == shop.at()
    assert shop.offset() == ids[3]
    assert shop.group(strict=False).follow(start | {0: ids[1]})[0] == ids[5]


def test_older_checkpoint_whose_events_are_left_is_a_warning(shop, caplog):
    ids = shop.add(count=4)
    shop.hold("bill")
    group = shop.group()
    group.follow(group.begin(edges("earliest")) | {0: ids[3]})
    again = shop.group()
    again.follow(edges("0-0") | {0: ids[1]})
    (line,) = [one.getMessage() for one in caplog.records if "older than its group" in one.msg]
    assert f"after {ids[1]}, although {ids[3]} is committed" in line
    again.follow(edges("0-0") | {0: ids[2]})
    shop.group().follow(edges("0-0") | {0: ids[2]})
    assert caplog.text.count("older than its group") == 1


def test_checkpoint_newer_than_the_stream_is_told_as_such(shop):
    ids = shop.add(count=2)
    group = shop.group()
    start = group.begin(edges("earliest")) | {0: ids[1]}
    group.follow(start)
    shop.redis.delete(shop.key())
    shop.redis.xadd(shop.key(), {"d": "x"}, id="5-0")
    with pytest.raises(
        StateError, match=r"last event that Redis knows is 5-0, so Redis was restored"
    ):
        group.follow(start)


# ── a start that fails ───────────────────────────────────────────────────────────────────────────


def registered_keys(shop):
    """Return what a group leaves in Redis."""
    offsets = [shop.offset(number=number) for number in range(COUNT)]
    return [one for one in offsets if one], shop.redis.keys("*:at:*")


def reader_of(shop, monkeypatch):
    """Return a query's reader, on the connection of the tests."""
    monkeypatch.setattr(readers, "connection", lambda _: shop.connection)
    where = {"appName": "shop", "stream": "orders", "redis": shop.url, "record": "raw"}
    source = RinkDataSource({**where, "group": "q", "maxOffsetsPerTrigger": "2"})
    return source.streamReader(source.schema())


def failing_at(shop, step):
    """Make a step fail."""
    plain = shop.connection.run_each

    def run_each(name, asked):
        if name == step:
            raise ConnectionError("on purpose")
        return plain(name, asked)

    shop.connection.run_each = run_each


@pytest.mark.parametrize("step", ["source/enter", "source/follow", "source/bound"])
def test_start_that_fails_before_a_batch_is_planned_leaves_no_group(shop, step, monkeypatch):
    shop.add(count=3)
    reader = reader_of(shop, monkeypatch)
    start = reader.initialOffset()
    assert reader.initialOffset() == start  # Spark asks twice
    assert registered_keys(shop)[0] == ["0-0"] * COUNT
    failing_at(shop, step)
    with pytest.raises(ConnectionError):
        reader.latestOffset(start, reader.getDefaultReadLimit())
    assert registered_keys(shop) == ([], [])


def test_start_that_fails_halfway_in_its_registration_leaves_no_group(shop, monkeypatch):
    shop.add(count=3)
    group = shop.group()

    def run(client, calls):
        if len(calls) == COUNT and '"dry_run":false' in calls[0].args:
            run_scripts(client, calls[:1])
            raise RuntimeError("on purpose")
        return run_scripts(client, calls)

    monkeypatch.setattr(redis_connection, "run_scripts", run)
    with pytest.raises(RuntimeError, match="on purpose"):
        group.begin(edges("earliest"))
    assert registered_keys(shop) == ([], [])


def test_failure_after_a_batch_was_planned_keeps_the_group(shop, monkeypatch):
    """The checkpoint may have the batch, whose replay must begin there."""
    shop.add(count=3)
    reader = reader_of(shop, monkeypatch)
    start = reader.initialOffset()
    reader.latestOffset(start, reader.getDefaultReadLimit())
    failing_at(shop, "source/follow")
    with pytest.raises(ConnectionError):
        reader.latestOffset(start, reader.getDefaultReadLimit())
    assert registered_keys(shop)[0] == ["0-0"] * COUNT


def test_failing_start_leaves_a_group_that_was_there_before(shop):
    """A first start was killed, and a batch of it may be planned."""
    ids = shop.add(count=3)
    shop.group().begin(edges("latest"))
    again = shop.group()
    start = again.begin(edges("latest"))
    again.follow(start)
    with pytest.raises(ZeroDivisionError), again.withdrawn_on_error():
        raise ZeroDivisionError
    assert shop.offset() == ids[2]


def test_failing_start_keeps_a_fence_and_what_a_later_driver_has(shop):
    shop.add(count=3)
    older, newer = shop.group(token=1), shop.group(token=2)
    start = older.begin(edges("earliest"))
    newer.follow(newer.begin(edges("earliest")))
    with pytest.raises(StaleToken), older.withdrawn_on_error():
        older.follow(start)
    assert registered_keys(shop)[0] == ["0-0"] * COUNT
    shop.redis.flushall()
    shop.place_on(shop.url)
    shop.add(count=3)
    older.follow(older.begin(edges("earliest")))
    with pytest.raises(ZeroDivisionError), older.withdrawn_on_error():
        raise ZeroDivisionError
    assert registered_keys(shop)[0] == []
    with pytest.raises(StaleToken):
        shop.group(token=0).begin(edges("earliest"))


def test_failing_start_keeps_what_another_start_begins_with(shop):
    """Two drivers start the query at once, and one of them fails."""
    shop.add(count=3)
    shop.trim()
    shop.add(count=2)
    fails, goes_on = shop.group(), shop.group()
    fails.begin(edges("earliest"))
    start = goes_on.begin(edges("earliest"))
    with pytest.raises(ZeroDivisionError), fails.withdrawn_on_error():
        raise ZeroDivisionError
    assert registered_keys(shop)[0] == ["0-0"] * COUNT
    goes_on.follow(start)


@pytest.mark.parametrize("number", range(COUNT))
def test_start_refused_in_one_partition_alone_leaves_no_group_in_others(shop, number):
    shop.redis.hset(shop.names.partition(number).kept, "added", "3")  # of an earlier commit
    with pytest.raises(StateError, match="format"):
        shop.group().begin(edges("earliest"))
    assert registered_keys(shop) == ([], [])


def test_failing_start_whose_withdrawal_was_not_answered_leaves_no_group(shop):
    plain = shop.connection.run

    def run(name, *given, **args):
        if name == "source/withdraw":
            plain(name, *given, **args)  # its answer is lost, and it is repeated
        return plain(name, *given, **args)

    shop.connection.run = run
    group = shop.group()
    group.begin(edges("earliest"))
    with pytest.raises(ZeroDivisionError), group.withdrawn_on_error():
        raise ZeroDivisionError
    assert registered_keys(shop) == ([], [])


def test_second_start_that_fails_under_one_token_leaves_no_group(shop):
    for has_entered in (True, False):
        group = shop.group(token=1)
        start = group.begin(edges("earliest"))
        if has_entered:
            group.follow(start)
        with pytest.raises(ZeroDivisionError), group.withdrawn_on_error():
            raise ZeroDivisionError
        assert registered_keys(shop)[0] == []

"""Test the steps of a sink on a real Redis, without Spark."""

import contextlib
import threading

import pytest
import redis
import sink_steps
from sink_steps import Died, DiesAfter, decided_and_left, left, published, put_aside, sink

from rink.errors import StaleToken, StateError
from rink.spark.redis_connection import RedisConnection
from rink.spark.sink.publishing import SinkBatch
from rink.spark.sink.staging import staged
from rink.spark.sink.writers import Staged, _drop
from rink.streams.errors import PartitionFull

shop = sink_steps.shop


# ── one batch ────────────────────────────────────────────────────────────────────────────────────


def test_batch_is_in_the_stream_once_and_in_the_order_of_each_task(shop):
    manifest = put_aside(shop, *[(0, f"a{n}") for n in range(5)], (1, "b"))
    more = put_aside(shop, *[(0, f"c{n}") for n in range(3)])
    sink(shop).commit(SinkBatch("x", 0), manifest | more)
    found = published(shop)
    assert [one for one in found if one[0] == "a"] == [f"a{n}" for n in range(5)]
    assert [one for one in found if one[0] == "c"] == [f"c{n}" for n in range(3)]
    assert published(shop, 1) == ["b"]
    assert left(shop) == []


def test_replay_of_a_published_batch_changes_nothing(shop):
    sink(shop).commit(SinkBatch("x", 4), put_aside(shop, (0, "a")))
    sink(shop).commit(SinkBatch("x", 4), put_aside(shop, (0, "a")))
    assert published(shop) == ["a"]
    assert left(shop) == []


def test_batch_behind_later_ones_is_refused_since_it_may_have_other_rows(shop):
    for number in (3, 4):
        sink(shop).commit(SinkBatch("x", number), put_aside(shop, (0, str(number))))
    with pytest.raises(
        StateError, match=r"batch 3 of query x .* batch 4 .* rolled back.* new checkpoint"
    ) as caught:
        sink(shop).commit(SinkBatch("x", 3), put_aside(shop, (0, "others")))
    assert shop.redis.hget(caught.value.key, "batch:x") == b"4"
    sink(shop).commit(SinkBatch("x", 5), put_aside(shop, (0, "5")))
    assert published(shop) == ["3", "4", "5"]
    assert left(shop) == []


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("steps", range(12))
def test_batch_of_a_driver_that_dies_at_any_step_is_completed(shop, steps, before):
    first = put_aside(shop, *[(0, f"a{n}") for n in range(5)], *[(1, f"b{n}") for n in range(3)])
    dies = sink(shop, token=1, connection=DiesAfter(shop, steps, before=before))
    with contextlib.suppress(Died):
        dies.commit(SinkBatch("x", 0), first)
    again = sink(shop, token=2)
    again.raise_fence()
    # A replay has the same rows, cut into other tasks.
    second = put_aside(shop, *[(0, f"a{n}") for n in range(5)])
    second |= put_aside(shop, *[(1, f"b{n}") for n in range(3)])
    again.commit(SinkBatch("x", 0), second)
    assert published(shop) == [f"a{n}" for n in range(5)]
    assert published(shop, 1) == [f"b{n}" for n in range(3)]
    again.commit(SinkBatch("x", 1), put_aside(shop, (0, "next")))
    assert published(shop)[5:] == ["next"]
    assert [key for key in left(shop) if not any(attempt in key for attempt in first)] == []


@pytest.mark.parametrize("moved", [0, 1])
def test_older_batch_takes_nothing_from_one_that_is_not_published_yet(shop, moved):
    """A restored checkpoint does so, or two drivers without roles."""
    sink(shop).commit(SinkBatch("x", 0), put_aside(shop, (0, "old")))
    many = [(0, f"a{n}") for n in range(5)]
    decided_and_left(shop, SinkBatch("x", 1), put_aside(shop, *many), moved=moved)
    with pytest.raises(StateError, match="rolled back"):
        sink(shop).commit(SinkBatch("x", 0), put_aside(shop, (0, "old")))
    sink(shop).commit(SinkBatch("x", 1), put_aside(shop, *many))
    assert published(shop) == ["old", *[f"a{n}" for n in range(5)]]
    assert left(shop) == []


def test_batch_without_rows_is_one_too(shop):
    sink(shop).commit(SinkBatch("x", 0), {})
    sink(shop).commit(SinkBatch("x", 0), {})
    sink(shop).commit(SinkBatch("x", 1), put_aside(shop, (0, "a")))
    assert published(shop) == ["a"]
    sink(shop, token=2).raise_fence()
    with pytest.raises(StaleToken):
        sink(shop, token=1).commit(SinkBatch("x", 2), {})


def test_two_attempts_of_one_task_never_mix(shop):
    dead = put_aside(shop, (0, "from the attempt that died"))
    sink(shop).commit(SinkBatch("x", 0), put_aside(shop, (0, "counts")))
    assert published(shop) == ["counts"]
    assert (
        shop.redis.ttl(staged(shop.place, 0, next(iter(dead)))) > 0
    )  # no commit names it, so it expires


def test_what_may_be_decided_on_is_kept_for_long(shop):
    manifest = put_aside(shop, (0, "a"))
    key = staged(shop.place, 0, next(iter(manifest)))
    assert 0 < shop.redis.ttl(key) <= 60
    dies = sink(shop, connection=DiesAfter(shop, 0, names=("sink/decide",), before=True))
    with pytest.raises(Died):
        dies.commit(SinkBatch("x", 0), manifest)
    assert shop.redis.ttl(key) > 29 * 86_400


@pytest.mark.parametrize("harm", ["gone", "short", "long"])
def test_incomplete_staged_list_stops_the_batch_before_any_write(shop, harm):
    manifest = put_aside(shop, (0, "a"), (0, "b"), (1, "c"))
    key = staged(shop.place, 0, next(iter(manifest)))
    if harm == "gone":
        shop.redis.delete(key)
    elif harm == "short":
        shop.redis.lpop(key)
    else:
        shop.redis.rpush(key, "more")
    with pytest.raises(StateError, match=r"of 2 staged records.*can be repeated"):
        sink(shop).commit(SinkBatch("x", 0), manifest)
    assert published(shop) == published(shop, 1) == []
    assert left(shop) == [], "each try would leave nearly a batch for 30 days"
    sink(shop).commit(SinkBatch("x", 0), put_aside(shop, (0, "a"), (0, "b"), (1, "c")))
    assert published(shop) == ["a", "b"]


def test_decided_batch_with_a_lost_list_is_kept_when_committed_again(
    shop,
):
    manifest = put_aside(shop, *((0, f"a{n}") for n in range(5)))
    decided_and_left(shop, SinkBatch("x", 0), manifest, moved=1)
    with pytest.raises(StateError, match="can be repeated"):
        sink(shop).commit(SinkBatch("x", 0), manifest)
    assert left(shop)
    sink(shop).commit(SinkBatch("x", 0), put_aside(shop, *((0, f"a{n}") for n in range(5))))
    assert published(shop) == [f"a{n}" for n in range(5)]


def test_what_is_lost_after_it_was_begun_with_is_told_with_the_way_out(shop):
    many = [(0, f"a{n}") for n in range(5)]
    decided_and_left(shop, SinkBatch("x", 0), put_aside(shop, *many), moved=1)
    shop.redis.delete(*left(shop))
    told = r"is gone.*\(records of the batch that were published: 2\).*HDEL (\S+) manifest"
    with pytest.raises(StateError, match=told) as error:
        sink(shop).commit(SinkBatch("x", 0), put_aside(shop, *many))
    shop.redis.execute_command(*str(error.value).rpartition("loss, run ")[2].split())
    sink(shop).commit(SinkBatch("x", 0), put_aside(shop, *many))
    sink(shop).commit(SinkBatch("x", 1), put_aside(shop, (0, "next")))
    assert published(shop) == ["a0", "a1", "next"]


def test_what_is_lost_before_it_was_begun_with_is_replaced_by_the_replay(shop):
    many = [(0, f"a{n}") for n in range(5)]
    decided_and_left(shop, SinkBatch("x", 0), put_aside(shop, *many), moved=0)
    shop.redis.delete(*left(shop))
    sink(shop).commit(SinkBatch("x", 0), put_aside(shop, *many))
    assert published(shop) == [f"a{n}" for n in range(5)]


def test_hole_is_seen_before_anything_is_moved(shop):
    lost = put_aside(shop, *[(1, f"b{n}") for n in range(3)])
    whole = put_aside(shop, *[(0, f"a{n}") for n in range(3)])
    decided_and_left(shop, SinkBatch("x", 0), lost | whole, moved=0)
    shop.redis.delete(staged(shop.place, 1, next(iter(lost))))
    with pytest.raises(StateError, match=r"\(records of the batch that were published: 0\)"):
        sink(shop).commit(SinkBatch("x", 1), put_aside(shop, (0, "next")))
    assert published(shop) == []


def test_what_is_lost_of_several_lists_is_told_with_what_is_in(shop):
    """Each record counts once, however many lists its partition has."""
    first, second = put_aside(shop, (0, "a0"), (0, "a1")), put_aside(shop, (0, "a2"), (0, "a3"))
    decided_and_left(shop, SinkBatch("x", 0), first | second, moved=1)
    shop.redis.delete(*left(shop))
    with pytest.raises(StateError, match=r"\(records of the batch that were published: 2\)"):
        sink(shop).commit(SinkBatch("x", 0), put_aside(shop, *[(0, f"a{n}") for n in range(4)]))


def test_list_that_is_lost_while_others_are_moved_is_not_replaced(shop):
    """Otherwise published records would be published again."""
    records = [(0, "a0"), (0, "a1"), (1, "b0")]
    manifest = put_aside(shop, *records)
    decided_and_left(shop, SinkBatch("x", 0), manifest, moved=0)

    class Expires(DiesAfter):
        """The list of partition 1 is gone once partition 0 was published."""

        def run_each(self, name, asked):
            found = self.plain.run_each(name, asked)
            if name == "sink/publish" and published(shop):
                shop.redis.delete(staged(shop.place, 1, next(iter(manifest))))
            return found

    with pytest.raises(StateError, match=r"\(records of the batch that were published: 2\)"):
        sink(shop, connection=Expires(shop, 0)).commit(SinkBatch("x", 0), put_aside(shop, *records))
    assert (published(shop), published(shop, 1)) == (["a0", "a1"], [])


def test_abort_after_a_commit_that_failed_removes_nothing_of_the_batch(shop):
    """Spark aborts what `commit` raised at, which may be decided."""
    shop.hold("bill")
    many = [(0, f"a{n}") for n in range(5)]
    manifest = put_aside(shop, *many)
    with pytest.raises(PartitionFull):
        sink(shop, limit=3, patience=0.05).commit(SinkBatch("x", 0), manifest)
    messages = [Staged("x", attempt, counts) for attempt, counts in manifest.items()]
    _drop(lambda _: sink(shop), "q", messages)
    sink(shop).commit(SinkBatch("x", 0), put_aside(shop, *many))
    assert published(shop) == [f"a{n}" for n in range(5)]


def test_abort_after_a_failed_task_removes_what_other_tasks_staged(shop):
    manifest = put_aside(shop, (0, "a"))
    messages = [Staged("x", attempt, counts) for attempt, counts in manifest.items()]
    _drop(lambda _: sink(shop), "q", [*messages, None])
    assert left(shop) == []


def test_sink_that_was_removed_loses_no_batch_that_comes_later(shop):
    for number in range(5):
        sink(shop).commit(SinkBatch("x", number), put_aside(shop, (0, f"{number}")))
    shop.redis.delete("rink:{shop/orders}:sink:q")
    sink(shop).commit(SinkBatch("y", 0), put_aside(shop, (0, "again")))
    assert published(shop) == ["0", "1", "2", "3", "4", "again"]


def test_partition_that_knows_more_than_the_sink_is_told(shop):
    shop.redis.hset(f"{shop.key()}:sunk:q", mapping={"format": 1, "seq": str(2**62), "done": "1"})
    with pytest.raises(StateError, match="was rolled back"):
        sink(shop).commit(SinkBatch("x", 0), put_aside(shop, (0, "a")))


def test_checkpoint_that_comes_back_after_another_one_doubles_nothing(shop):
    sink(shop, token=1).commit(SinkBatch("one", 7), put_aside(shop, (0, "seven")))
    sink(shop, token=2).commit(SinkBatch("two", 0), put_aside(shop, (0, "x")))
    sink(shop, token=3).commit(SinkBatch("one", 7), put_aside(shop, (0, "seven")))
    assert published(shop) == ["seven", "x"]
    sink(shop, token=3).commit(SinkBatch("one", 8), put_aside(shop, (0, "eight")))
    assert published(shop) == ["seven", "x", "eight"]


# ── drivers ──────────────────────────────────────────────────────────────────────────────────────


def test_stale_driver_is_refused_and_nothing_is_written(shop):
    sink(shop, token=2**62 + 1).raise_fence()
    stale = sink(shop, token=2**62)
    with pytest.raises(StaleToken) as told:
        stale.raise_fence()
    assert (told.value.token, told.value.newer) == (2**62, 2**62 + 1)
    with pytest.raises(StaleToken, match="writes nothing there any more"):
        stale.commit(SinkBatch("x", 0), put_aside(shop, (0, "stale")))
    assert published(shop) == []
    sink(shop, token=2**62 + 1).commit(SinkBatch("x", 0), put_aside(shop, (0, "fresh")))
    assert published(shop) == ["fresh"]


def test_driver_that_was_frozen_amid_publishing_writes_nothing_twice(shop):
    many = [(0, f"a{n}") for n in range(9)]
    manifest = put_aside(shop, *many)

    class Frozen(DiesAfter):
        """In its second step, the next driver completes this batch and two more."""

        def run_each(self, name, asked):
            if name == "sink/publish":
                self.steps -= 1
            if name == "sink/publish" and self.steps == 0:
                later = sink(shop, token=2)
                later.raise_fence()
                later.commit(SinkBatch("x", 0), put_aside(shop, *many))
                later.commit(SinkBatch("x", 1), put_aside(shop, (0, "b")))
                later.commit(SinkBatch("x", 2), put_aside(shop, (1, "c")))
            return self.plain.run_each(name, asked)

    sink(shop, token=1, connection=Frozen(shop, 2)).commit(SinkBatch("x", 0), manifest)
    assert published(shop) == [*[f"a{n}" for n in range(9)], "b"]
    assert published(shop, 1) == ["c"]
    with pytest.raises(StaleToken):
        sink(shop, token=1).commit(SinkBatch("x", 1), put_aside(shop, (0, "stale")))


def test_decision_with_a_lost_answer_stands_after_the_next_drivers_fence(shop):
    class LosesAnAnswer(DiesAfter):
        """Lose the answer of `decide`, begin the next driver, then send it again."""

        def run_each(self, name, asked):
            found = self.plain.run_each(name, asked)
            if name == "sink/decide" and self.steps:
                self.steps = 0
                sink(shop, token=2).raise_fence()
                return self.plain.run_each(name, asked)
            return found

    many = [(0, f"a{n}") for n in range(5)]
    lossy = sink(shop, token=1, connection=LosesAnAnswer(shop, 1))
    lossy.commit(SinkBatch("x", 0), put_aside(shop, *many))
    assert published(shop) == [f"a{n}" for n in range(5)]
    with pytest.raises(StaleToken):
        sink(shop, token=1).commit(SinkBatch("x", 1), put_aside(shop, (0, "stale")))


def test_driver_with_a_new_checkpoint_completes_the_decided_batch(shop):
    manifest = put_aside(shop, *[(0, f"a{n}") for n in range(5)])
    decided_and_left(shop, SinkBatch("old", 7), manifest, moved=1, token=1)
    sink(shop, token=2).commit(SinkBatch("new", 0), put_aside(shop, (0, "b")))
    assert published(shop) == [*[f"a{n}" for n in range(5)], "b"]
    with pytest.raises(StaleToken):
        sink(shop, token=1).commit(SinkBatch("old", 8), put_aside(shop, (0, "stale")))


@pytest.mark.parametrize("token", [0, 5])
def test_two_queries_with_one_name_are_refused(shop, token):
    sink(shop, token=token).commit(SinkBatch("one", 0), put_aside(shop, (0, "a")))
    with pytest.raises(StateError, match="belongs to query one"):
        sink(shop, token=token).commit(SinkBatch("two", 0), put_aside(shop, (0, "b")))
    assert published(shop) == ["a"]
    sink(shop, token=token + 1).commit(SinkBatch("two", 0), put_aside(shop, (0, "b")))
    assert published(shop) == ["a", "b"]


def test_sinks_of_other_names_do_not_know_each_other(shop):
    sink(shop, name="BTC/ETH", token=9).commit(SinkBatch("x", 0), put_aside(shop, (0, "a")))
    sink(shop, name="../x").commit(SinkBatch("x", 0), put_aside(shop, (0, "b")))
    assert published(shop) == ["a", "b"]


def test_two_drivers_at_once_write_each_batch_once(shop):
    def drive(token):
        mine = sink(
            shop, token=token, connection=RedisConnection(redis.Redis.from_url(shop.url), 1.0)
        )
        for number in range(20):
            try:
                mine.commit(
                    SinkBatch("x", number), put_aside(shop, (0, f"{number}"), (1, f"{number}"))
                )
            except StaleToken:
                return
            except StateError as error:  # another driver is ahead
                assert "rolled back" in str(error)  # noqa: PT017 - there may be none

    threads = [threading.Thread(target=drive, args=(token,)) for token in (1, 1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert published(shop) == published(shop, 1) == [str(number) for number in range(20)]

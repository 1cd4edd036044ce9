"""Test that a Redis user needs exactly the rights in docs/spark.md.

This uses a real Redis, without Spark.
"""

import re
from pathlib import Path

import pytest
import sink_steps
from sink_steps import published
from spark_support import Shop, edges

from rink.guards import Batch as Part
from rink.guards import Fence, RedisGuard
from rink.redis.errors import RedisError
from rink.spark.sink.publishing import SinkBatch
from rink.spark.sink.staging import Staging

shop = sink_steps.shop

DOCS = Path(__file__).parents[2] / "docs"
WORKER = re.search(
    r"A worker's user needs: `~rink:\* ([^`]*)`", (DOCS / "streams-redis.md").read_text()
)
OURS = "~rink:*"
PAGE = (DOCS / "spark.md").read_text()
(LISTS,) = re.search(r"\| sink \| the same, and `([^`]*)`", PAGE).groups()
(GUARD,) = re.search(r"\| a `RedisGuard` \| `([^`]*)`", PAGE).groups()


@pytest.fixture
def user(shop):
    """Yield a function that makes a user and returns its URL."""

    def make(rights):
        shop.redis.acl_setuser("some", reset=True)
        shop.redis.execute_command("ACL", "SETUSER", "some", "on", ">pw", *rights.split())
        return shop.url.replace("redis://", "redis://some:pw@")

    yield make
    shop.redis.acl_deluser("some")


def reads(url):
    its = Shop(url)
    assert its.connection.partition_count(its.place) == 3
    group = its.group(token=1)
    begun = group.begin(edges("earliest"))
    ends = group.follow(begun)
    read = its.read(begun[0], ends[0], removed=group.removed([0])[0])
    group.advance(ends)
    return read


def writes(url):
    its = Shop(url)
    its.connection.settle_count(its.place)
    for _ in range(2):  # and a replay, which is removed
        staging = Staging(its.place, its.connection, 60)
        staging.add((0, data) for data in (b"a", b"b", b"c"))
        staging.end()
        sink = sink_steps.sink(its, token=1)
        sink.commit(SinkBatch("x", 0), {staging.attempt: dict(staging.counts)})


def test_reader_and_a_writer_need_what_the_page_says(shop, user):
    ids = shop.add(count=5)
    url = user(f"{OURS} {WORKER[1]} {LISTS}")
    assert reads(url) == ids
    writes(url)
    assert published(shop)[-3:] == ["a", "b", "c"]


def test_reader_needs_no_lists(shop, user):
    ids = shop.add(count=5)
    assert reads(user(f"{OURS} {WORKER[1]}")) == ids


@pytest.mark.parametrize("missing", ["+time", *LISTS.split()])
def test_none_of_it_is_too_much(shop, user, missing):
    rights = [one for one in (OURS, *WORKER[1].split(), *LISTS.split()) if one != missing]
    url = user(" ".join(rights))
    with pytest.raises(RedisError, match=r"no permissions|can't run this command"):
        writes(url)


def test_guard_needs_what_the_page_says_and_what_its_parts_do(shop, user):
    fence, batch = Fence("flights", 3), Part(query="q", number=0, parts=2)
    guard = RedisGuard(user(f"~rink:guard:* ~sums -@all {GUARD} +hincrby") + "/0")
    guard.raise_fence(fence)
    guard.begin(fence, batch)
    results = []
    for number in range(2):
        with guard.part(fence, batch, number) as step:
            step.hincrby("sums", "AA", 2)
        results.append(None)
    guard.finish(fence, batch, results)
    guard.close()
    assert shop.redis.hgetall("sums") == {b"AA": b"4"}

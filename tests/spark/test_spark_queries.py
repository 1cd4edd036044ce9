"""Test queries by roles, on an etcd in memory and a stand-in for Spark."""

import sys
import threading

import pytest
from jobs_support import SHORT_TTL_S, WAIT_S, Guard, Started

from rink.errors import ConfigError
from rink.guards import Fence
from rink.spark.jobs import queries
from rink.spark.jobs.job import Job
from rink.spark.jobs.runner import JobRunner


def test_query_runs_while_its_role_is_held_after_raising_its_fence(driver, quick):
    starts, guard = Started(), Guard()

    @driver.query("delays", guards=[guard])
    def delays(job):
        assert guard.fences[-1] == Fence("delays", job.token)
        return starts(job)

    query = starts.wait_for(1)
    driver.close()
    assert query.ended.is_set()
    assert starts.tokens == [guard.fences[0].token]


def test_loss_cancels_and_stops_the_query_and_a_new_grant_starts_it(group, spark, quick):
    member, client = group.join(ttl=SHORT_TTL_S)
    starts = Started()
    with JobRunner(spark, member) as jobs:
        jobs.query("delays")(starts)
        query = starts.wait_for(1)
        client.cut()
        assert query.ended.wait(WAIT_S)
        assert spark.sparkContext.groups == ["run-0"]
        client.heal()
        starts.wait_for(2)
    assert starts.tokens[1] > starts.tokens[0]


def test_query_function_that_asks_for_on_loss_has_both_stopped(driver, quick):
    starts, stopped = Started(), threading.Event()

    @driver.query("a")
    def start(job):
        job.on_loss(stopped.set)
        return starts(job)

    query = starts.wait_for(1)
    driver.close()
    assert stopped.wait(WAIT_S)
    assert query.ended.wait(WAIT_S)


def test_one_that_fails_is_started_again_under_the_same_grant(driver, quick, caplog):
    starts = Started()
    driver.query("delays")(starts)
    starts.wait_for(1).fail(RuntimeError("[CONCURRENT_STREAM_LOG_UPDATE] on purpose"))
    starts.wait_for(2)
    assert starts.tokens[0] == starts.tokens[1]
    assert "restarting in" in caplog.text
    assert "CONCURRENT_STREAM_LOG_UPDATE" in caplog.text


def test_function_that_exits_the_process_is_logged_and_restarted(driver, monkeypatch, caplog):
    calls, paused = [], threading.Event()
    monkeypatch.setattr(queries, "backoff", lambda *_: paused.set() or 600.0)

    @driver.query("delays")
    def delays(job):
        calls.append(job.token)
        sys.exit("SHOP_URL is not set")

    assert paused.wait(WAIT_S)
    assert driver.queries[0]._job is not None  # the same grant
    driver.close()
    assert calls == [calls[0]]
    assert "SystemExit: SHOP_URL is not set" in caplog.text


@pytest.mark.parametrize(("longest", "counted"), [(0.0, [1, 1, 1]), (600.0, [1, 2, 3])])
def test_pauses_begin_small_again_after_a_query_has_run_for_long(
    driver, quick, monkeypatch, longest, counted
):
    starts, failures = Started(), []
    monkeypatch.setattr(queries, "MAX_PAUSE_S", longest)
    monkeypatch.setattr(queries, "backoff", lambda count, *_: failures.append(count) or 0.0)
    driver.query("delays")(starts)
    for n in range(1, 4):
        starts.wait_for(n).fail(RuntimeError("on purpose"))
    starts.wait_for(4)
    assert failures == counted


def test_query_in_a_pause_after_a_failure_ends_at_once_when_closed(driver, monkeypatch):
    starts, paused = Started(), threading.Event()
    monkeypatch.setattr(queries, "backoff", lambda *_: paused.set() or 600.0)
    driver.query("delays")(starts)
    starts.wait_for(1).fail(RuntimeError("on purpose"))
    assert paused.wait(WAIT_S)
    driver.close(timeout=WAIT_S)
    assert driver.queries[0].wait(0)


def test_one_that_ends_by_itself_is_started_again_by_the_next_grant_alone(
    group, spark, quick, caplog
):
    member, client = group.join(ttl=SHORT_TTL_S)
    starts = Started()
    with JobRunner(spark, member) as jobs:
        caplog.set_level("INFO", logger="rink.spark")
        jobs.query("delays")(starts)
        starts.wait_for(1).stop()
        job = jobs.queries[0]._job
        while "ended by itself under token" not in caplog.text:
            assert not job.wait(0.01)
        client.cut()
        assert job.lost.wait(WAIT_S)
        client.heal()
        starts.wait_for(2)
    assert len(starts.queries) == 2
    assert starts.tokens[1] > starts.tokens[0]


def test_function_that_returns_no_query_is_told(driver, quick, caplog):
    called = threading.Semaphore(0)
    driver.query("delays")(lambda _: called.release())
    assert all(called.acquire(timeout=WAIT_S) for _ in range(2))
    driver.close()
    assert "it must return the started query" in caplog.text


def test_cause_is_told_where_spark_wraps_a_traceback(driver, quick, caplog):
    starts = Started()
    driver.query("delays")(starts)
    starts.wait_for(1).fail(
        RuntimeError(
            "[STREAM_FAILED] Query [id = 7] terminated with exception: Traceback (most recent "
            "call last):\n"
            '  File "writers.py", line 7, in __init__\n    self.raise_fence()\n    ^^^^^^^^^\n'
            "rink.errors.StaleToken: sink 'totals' belongs to a later driver\n\tat "
            "org.apache.spark.Some(Some.scala:7)"
        )
    )
    starts.wait_for(2)
    assert (
        "RuntimeError: [STREAM_FAILED] Query [id = 7] terminated with exception: Traceback (most "
        "recent call last): … rink.errors.StaleToken: sink 'totals' belongs to a later driver\n"
    ) in caplog.text


def test_two_queries_of_one_name_are_refused(driver, quick):
    starts = Started()
    driver.query("delays")(starts)
    with pytest.raises(ConfigError, match="there is a query 'delays' already"):
        driver.query("delays")(starts)
    starts.wait_for(1)


def test_query_that_is_closed_while_it_starts_is_stopped(driver, quick):
    begun, starts = threading.Event(), Started()

    def slow(job):
        begun.set()
        while not job.lost.wait(WAIT_S):
            pass
        return starts(job)

    driver.query("delays")(slow)
    assert begun.wait(WAIT_S)
    driver.close()
    assert starts.queries[0].ended.is_set()


def test_job_says_what_it_is(driver):
    job = driver.run("a", lambda _: None)
    assert repr(job) == f"<Job 'a' token={job.token} succeeded>"
    assert isinstance(job, Job)

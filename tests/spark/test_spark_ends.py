"""Test that a driver in which nothing can run leaves the group."""

import pytest
from jobs_support import WAIT_S, Spark, Started

import rink
from rink.errors import ClosedError, ConfigError, StateError
from rink.spark.jobs.driver_exit import SparkStopped
from rink.spark.jobs.runner import JobRunner


def test_driver_whose_jvm_is_gone_leaves_and_another_has_its_query(group, spark, quick):
    its = next(f"query-{n}" for n in range(99) if rink.rank_of(f"query-{n}", 2) == 0)
    one, _ = group.join("one")
    two, _ = group.join("two")
    first, second = Started(), Started()
    with JobRunner(spark, one) as jobs:
        jobs.query(its)(first)
        query = first.wait_for(1)
        with JobRunner(Spark(), two) as others:
            others.query(its)(second)
            spark.sparkContext.is_stopped = True
            query.fail(ConnectionRefusedError("the JVM is gone"))
            with pytest.raises(SparkStopped, match="start a new driver"):
                jobs.wait(WAIT_S)
            second.wait_for(1)
    assert len(first.queries) == 1
    assert second.tokens[0] > first.tokens[0]


def test_one_that_finds_so_by_a_listed_job_leaves_too(driver, quick):
    def fails(job):
        driver.spark.sparkContext.is_stopped = True
        raise ConnectionRefusedError("the JVM is gone")

    driver.watch(lambda: ["a"], fails, every=0.05)
    with pytest.raises(SparkStopped):
        driver.wait(WAIT_S)


def test_one_that_finds_so_by_a_job_of_its_own_leaves_too(driver):
    def fails(job):
        driver.spark.sparkContext.is_stopped = True
        raise ConnectionRefusedError("the JVM is gone")

    driver.run("a", fails)
    with pytest.raises(SparkStopped):
        driver.wait(WAIT_S)
    with pytest.raises(ClosedError, match="start a new driver"):  # a later start raises, too
        driver.start("b", print)


def test_one_that_finds_so_by_its_list_of_jobs_leaves_too(driver, quick):
    def list_pending_jobs():  # with Spark
        driver.spark.sparkContext.is_stopped = True
        raise ConnectionRefusedError("the JVM is gone")

    driver.watch(list_pending_jobs, lambda _: None, every=0.05)
    with pytest.raises(SparkStopped):
        driver.wait(WAIT_S)


def test_job_that_failed_for_another_reason_ends_no_driver(driver):
    with pytest.raises(ZeroDivisionError):
        driver.run("a", lambda _: 1 / 0).result()
    assert driver.run("b", lambda _: 1).result() == 1
    assert not driver.wait(0)


def test_group_that_gives_no_role_any_more_ends_the_runner(group, spark, monkeypatch):
    member, _ = group.join()

    def refuses(*_, **__):
        raise StateError("what lies in etcd is not ours")

    monkeypatch.setattr(member, "await_role", refuses)
    with JobRunner(spark, member) as jobs:
        jobs.query("delays")(Started())
        with pytest.raises(StateError, match="not ours"):
            jobs.wait(WAIT_S)


def test_who_waits_for_a_runner_goes_on_when_it_is_closed(group, spark):
    member, _ = group.join()
    with JobRunner(spark, member) as jobs:
        assert not jobs.wait(0)
    assert jobs.wait(0)


def test_runner_takes_a_rink_of_the_blocking_face(spark):
    with pytest.raises(ConfigError, match="the blocking one"):
        JobRunner(spark, object())


def test_standby_driver_without_jvm_leaves_when_its_query_is_granted(
    group, spark, quick, monkeypatch
):
    member, _ = group.join()
    monkeypatch.setattr(spark, "createDataFrame", refuses_since_the_jvm_is_gone)
    spark.sparkContext.is_stopped = True
    started = Started()
    with JobRunner(spark, member) as jobs:
        jobs.query("delays")(started)
        with pytest.raises(SparkStopped):
            jobs.wait(WAIT_S)
    assert started.queries == []


def test_query_that_cannot_run_for_another_reason_is_retried_after_pauses(
    driver, spark, quick, monkeypatch, caplog
):
    tries, plain = [], spark.createDataFrame

    def refuses_twice(*given):
        tries.append(given)
        if len(tries) < 3:
            raise RuntimeError("on purpose")
        plain(*given)

    monkeypatch.setattr(spark, "createDataFrame", refuses_twice)
    started = Started()
    driver.query("delays")(started)
    started.wait_for(1)
    assert caplog.text.count("could not be run under token") == 2
    assert not driver.wait(0)


@pytest.mark.parametrize("what", ["nothing", "a query", "a list of jobs", "an empty list"])
def test_group_that_was_left_under_its_runner_ends_it(group, spark, quick, what):
    member, _ = group.join()
    with JobRunner(spark, member) as jobs:
        if what == "a query":
            jobs.query("delays")(Started())
        elif what != "nothing":
            listed = ["a"] if what == "a list of jobs" else []
            jobs.watch(lambda: listed, lambda _: None, every=0.05)
        member.leave()
        with pytest.raises(ClosedError, match="has been left by member 'driver'"):
            jobs.wait(WAIT_S)
        assert not jobs.queries or jobs.queries[0].wait(WAIT_S)


def test_query_ends_its_runner_where_its_thread_cannot_go_on(group, spark, quick, monkeypatch):
    member, _ = group.join()
    monkeypatch.setattr(member, "await_role", lambda *_, **__: 1 / 0)
    with JobRunner(spark, member) as jobs:
        jobs.query("delays")(Started())
        with pytest.raises(ZeroDivisionError):
            jobs.wait(WAIT_S)


def refuses_since_the_jvm_is_gone(*_):
    raise ConnectionRefusedError("the JVM is gone")

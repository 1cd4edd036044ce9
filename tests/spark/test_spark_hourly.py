"""Test queries that end: run by a schedule, or once."""

import re
import threading
from types import SimpleNamespace

import pytest
from jobs_support import SHORT_TTL_S, WAIT_S, FakeQuery, Guard, Spark, Started

import rink
from rink.errors import ClosedError, ConfigError, RoleLost, UsageError
from rink.guards import Fence
from rink.spark.jobs import queries
from rink.spark.jobs.job import Job
from rink.spark.jobs.runner import JobRunner


class Ending(Started):
    """Queries that end at once, as if they read only what is there."""

    def __init__(self, takes=0.0):
        super().__init__()
        self.takes, self.overlaps = takes, 0

    def __call__(self, job):
        self.overlaps += any(not query.ended.is_set() for query in self.queries)
        query = super().__call__(job)
        threading.Timer(self.takes, query.ended.set).start()
        return query


# ── a schedule ───────────────────────────────────────────────────────────────────────────────────


def test_query_with_every_is_started_anew_under_one_grant(driver, quick):
    starts, guard = Ending(), Guard()
    driver.query("hourly", every=0.1, guards=[guard])(starts)
    starts.wait_for(4)
    driver.close()
    assert len(set(starts.tokens)) == 1
    assert starts.overlaps == 0
    assert guard.fences[:4] == [Fence("hourly", starts.tokens[0])] * 4


@pytest.mark.parametrize(
    ("takes", "pauses"),
    [
        ((200.0, 50.0, 0.0), ("400.0", "550.0", "600.0")),  # from start to start
        (
            (700.0, 0.0, 0.0),
            ("0.0", "600.0", "600.0"),
        ),  # late: at once, and the next hour from then
        ((1900.0, 0.0, 0.0), ("0.0", "600.0", "600.0")),  # missed starts are not made up for
    ],
)
def test_query_with_every_counts_from_start_to_start(
    driver, quick, monkeypatch, caplog, takes, pauses
):
    """A clock that only the query's runs and the pauses between them move."""
    caplog.set_level("INFO", logger="rink.spark")
    clock, runs, done = [1000.0], iter(takes), threading.Event()
    monkeypatch.setattr(queries, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    class Waits(threading.Event):
        def wait(self, timeout=None):
            if timeout is None or self.is_set():
                return super().wait(timeout)
            clock[0] += timeout
            return False

    def start(job):
        job.lost = Waits() if not isinstance(job.lost, Waits) else job.lost
        if (seconds := next(runs, None)) is None:
            done.set()
            return FakeQuery()
        clock[0] += seconds
        query = FakeQuery()
        query.stop()
        return query

    driver.query("hourly", every=600.0)(start)
    assert done.wait(WAIT_S)
    assert tuple(re.findall(r"restarting in (\S+) s", caplog.text)) == pauses
    driver.close()


def test_query_that_takes_longer_than_every_does_not_overlap(driver, quick):
    starts = Ending(takes=0.2)
    driver.query("hourly", every=0.05)(starts)
    starts.wait_for(4)
    driver.close()
    assert starts.overlaps == 0


def test_query_with_every_that_fails_is_tried_again_before_its_next_hour(driver, quick, caplog):
    starts = Started()
    driver.query("hourly", every=600)(starts)
    starts.wait_for(1).fail(RuntimeError("on purpose"))
    starts.wait_for(2).fail(RuntimeError("again"))
    starts.wait_for(3).stop()
    assert caplog.text.count("restarting in") == 2
    assert not driver.wait(0.1)
    assert len(starts.queries) == 3


def test_query_with_every_waits_for_its_hour_without_delaying_the_end(driver, quick):
    starts = Ending()
    driver.query("hourly", every=1e12)(starts)
    starts.wait_for(1)
    driver.close(timeout=WAIT_S)
    assert driver.queries[0].wait(0)


def test_query_with_every_goes_on_at_once_where_its_role_comes_to(group, spark, quick):
    one, _ = group.join("one")
    two, _ = group.join("two")
    its = next(f"query-{n}" for n in range(99) if rink.rank_of(f"query-{n}", 2) == 0)
    first, second = Ending(), Ending()
    with JobRunner(Spark(), two) as others, JobRunner(spark, one) as jobs:
        others.query(its, every=600)(second)
        jobs.query(its, every=600)(first)
        first.wait_for(1)
        jobs.close()
        one.leave()
        second.wait_for(1)
    assert (len(first.queries), len(second.queries)) == (1, 1)
    assert second.tokens[0] > first.tokens[0]


@pytest.mark.parametrize("every", [0, -1, "1h", float("inf"), True])
def test_query_every_that_is_no_interval_is_refused(driver, every):
    with pytest.raises(ConfigError, match="every"):
        driver.query("hourly", every=every)


def test_query_without_every_that_ends_says_how_to_have_it_run_again(driver, quick, caplog):
    starts = Ending()
    driver.query("delays")(starts)
    while "ended by itself" not in caplog.text:
        assert not driver.wait(0.01)
    assert "every=" in caplog.text
    assert "run_query" in caplog.text


# ── once ─────────────────────────────────────────────────────────────────────────────────────────


def test_run_query_returns_the_query_when_it_has_ended(driver):
    starts, guard = Ending(takes=0.1), Guard()
    query = driver.run_query("nightly", starts, guards=[guard])
    assert query is starts.queries[0]
    assert query.ended.is_set()
    assert guard.fences == [Fence("nightly", starts.tokens[0])]
    assert driver.jobs == driver.queries == []
    assert driver.run_query("nightly", starts) is starts.queries[1]


def test_run_query_raises_what_the_query_failed_with(driver):
    starts = Started()
    threading.Timer(0.05, lambda: starts.wait_for(1).fail(RuntimeError("on purpose"))).start()
    with pytest.raises(RuntimeError, match="on purpose"):
        driver.run_query("nightly", starts)
    with pytest.raises(ZeroDivisionError):
        driver.run_query("nightly", lambda _: 1 / 0)
    with pytest.raises(ConfigError, match="must return the started query"):
        driver.run_query("nightly", lambda _: None)
    assert len(starts.queries) == 1


def test_run_query_raises_role_lost_if_the_role_was_lost(group, spark):
    member, client = group.join(ttl=SHORT_TTL_S)
    starts = Started()
    cutting = threading.Thread(target=lambda: (starts.wait_for(1), client.cut()))
    cutting.start()
    with JobRunner(spark, member) as jobs, pytest.raises(RoleLost):
        jobs.run_query("nightly", starts)
    cutting.join(WAIT_S)
    assert starts.queries[0].ended.is_set()
    assert spark.sparkContext.groups == ["run-0"]


def test_run_query_of_another_driver_returns_none(group, spark):
    group.join("one")
    two, _ = group.join("two")
    two.wait_ranked(WAIT_S)
    its = next(f"query-{n}" for n in range(99) if rink.rank_of(f"query-{n}", 2) == 0)
    starts = Ending()
    with JobRunner(spark, two) as jobs:
        assert jobs.run_query(its, starts) is None
        jobs.query(its, every=600)(starts)
        assert jobs.run_query(its) is None
    assert starts.queries == []


def test_run_query_by_name_runs_the_declared_query_once_more(driver, quick):
    starts, guard = Ending(), Guard()
    driver.query("hourly", every=600, guards=[guard])(starts)
    starts.wait_for(1)
    assert driver.run_query("hourly") is starts.queries[1]
    assert not driver.wait(0.1)
    assert len(starts.queries) == len(guard.fences) == 2
    assert len(set(starts.tokens)) == 1


def test_run_query_by_name_waits_for_a_run_that_goes_on(driver, quick):
    """Events sent before the call are in the output when it returns."""
    starts = Ending(takes=0.3)
    driver.query("hourly", every=600)(starts)
    going_on = starts.wait_for(1)
    query = driver.run_query("hourly")
    assert query is not going_on
    assert going_on.ended.is_set()
    assert query.ended.is_set()
    assert starts.overlaps == 0


def test_run_query_by_name_and_its_schedule_do_not_overlap(driver, quick):
    starts = Ending(takes=0.02)
    driver.query("hourly", every=0.01)(starts)
    ran = [driver.run_query("hourly") for _ in range(10)]
    driver.close()
    assert len(set(ran)) == 10
    assert starts.overlaps == 0


def test_run_query_that_fails_by_name_raises_and_leaves_the_schedule(driver, quick):
    starts = Started()
    driver.query("hourly", every=600)(starts)
    starts.wait_for(1).stop()
    threading.Timer(0.05, lambda: starts.wait_for(2).fail(RuntimeError("on purpose"))).start()
    with pytest.raises(RuntimeError, match="on purpose"):
        driver.run_query("hourly")
    assert not driver.wait(0.1)
    assert len(starts.queries) == 2


def test_run_query_by_an_unknown_name_says_what_to_do(driver):
    with pytest.raises(ConfigError, match="no query 'nightly'"):
        driver.run_query("nightly")


def test_run_query_with_a_function_and_a_declared_name_is_refused(driver, quick):
    starts = Ending()
    driver.query("hourly", every=600)(starts)
    with pytest.raises(ConfigError, match="there is a query 'hourly'"):
        driver.run_query("hourly", starts)


def test_run_query_by_name_ends_when_its_runner_is_closed(driver, quick):
    starts = Started()
    driver.query("live")(starts)
    starts.wait_for(1)  # it does not end by itself
    threading.Timer(0.1, driver.close).start()
    with pytest.raises(ClosedError):
        driver.run_query("live")


def test_run_query_ends_when_its_runner_is_closed(driver, quick):
    starts = Started()
    closing = threading.Thread(target=lambda: (starts.wait_for(1), driver.close()))
    closing.start()
    with pytest.raises(RoleLost):
        driver.run_query("nightly", starts)
    closing.join(WAIT_S)
    assert starts.queries[0].ended.is_set()


def test_run_query_that_is_interrupted_ends_its_query_before_it_raises(driver, monkeypatch):
    """Ctrl-C in a notebook: the runner lives on, and so would the run."""
    starts, plain = Started(), Job.wait

    def wait(job, timeout=None):
        if timeout is None and threading.current_thread() is threading.main_thread():
            starts.wait_for(1)
            raise KeyboardInterrupt
        return plain(job, timeout)

    monkeypatch.setattr(Job, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        driver.run_query("a", starts)
    assert starts.queries[0].ended.is_set()
    assert driver.jobs == []


def test_run_that_is_interrupted_ends_its_job(driver, monkeypatch):
    begun, plain = threading.Event(), Job.wait

    def wait(job, timeout=None):
        if timeout is None and threading.current_thread() is threading.main_thread():
            assert begun.wait(WAIT_S)
            raise KeyboardInterrupt
        return plain(job, timeout)

    monkeypatch.setattr(Job, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        driver.run("a", lambda job: begun.set() or job.lost.wait(WAIT_S))
    assert driver.jobs == []


def test_run_query_by_name_in_its_own_function_is_refused(driver, quick):
    """Otherwise it would wait for the run whose function waits for it."""
    raised = []

    def hourly(job):
        try:
            driver.run_query("hourly")
        except UsageError as error:
            raised.append(str(error))
        return starts(job)

    starts = Started()
    driver.query("hourly", every=3600.0)(hourly)
    starts.wait_for(1).stop()
    driver_thread = threading.Thread(target=driver.run_query, args=("hourly",))
    driver_thread.start()
    starts.wait_for(2).stop()
    driver_thread.join(WAIT_S)
    assert len(raised) == 2
    assert all("was called by the function that starts this query" in one for one in raised)


def test_run_query_says_that_it_waits_for_a_run_that_goes_on(driver, quick, monkeypatch):
    monkeypatch.setattr(queries, "_WARN_AFTER_S", 0.05)
    told = threading.Event()
    monkeypatch.setattr(queries.log, "warning", lambda *given: lines.append(given) or told.set())
    lines, starts = [], Started()
    driver.query("hourly", every=3600.0)(starts)
    first = starts.wait_for(1)
    waiting = threading.Thread(target=driver.run_query, args=("hourly",))
    waiting.start()
    assert told.wait(WAIT_S)
    first.stop()
    starts.wait_for(2).stop()
    waiting.join(WAIT_S)
    assert lines == [("run_query(%r) waits for the run that is active here", "hourly")]

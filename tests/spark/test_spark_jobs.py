"""Jobs and queries by roles, on an etcd in memory and a stand-in for Spark that notes what is asked of it."""

import sys
import threading
import time
from collections import Counter

import pytest

import rink
from rink.errors import ClosedError, ConfigError, RoleLost, StateError, UsageError
from rink.guards import Fence
from rink.spark.jobs import queries, watching
from rink.spark.jobs.job import Job, State
from rink.spark.jobs.runner import JobRunner, SparkStopped
from rink.spark.jobs.tags import Tag

WAIT_S = 20


class Context:
    """What a SparkContext is asked for: tags of the thread, and cancels."""

    def __init__(self):
        self.tags = threading.local()
        self.cancelled = []
        self.groups = []
        self.was_cancelled = threading.Event()
        self.is_stopped = False

    @property
    def defaultParallelism(self):  # noqa: N802
        if self.is_stopped:
            raise ConnectionRefusedError("the JVM is gone")
        return 2

    def addJobTag(self, tag):  # noqa: N802
        self.tags.here = self.getJobTags() | {tag}

    def removeJobTag(self, tag):  # noqa: N802
        assert tag in self.getJobTags()
        self.tags.here = self.getJobTags() - {tag}

    def getJobTags(self):  # noqa: N802
        return getattr(self.tags, "here", set())

    def cancelJobsWithTag(self, tag):  # noqa: N802
        self.cancelled.append(tag)
        self.was_cancelled.set()

    def cancelJobGroup(self, group):  # noqa: N802
        self.groups.append(group)


class Spark:
    def __init__(self):
        self.sparkContext = Context()
        self.made_active_in = []

    def createDataFrame(self, *_):  # noqa: N802
        self.made_active_in.append(threading.current_thread().name)


class FakeQuery:
    """A streaming query that ends when it is stopped, or told to fail."""

    def __init__(self, name="run"):
        self.runId = name
        self.ended = threading.Event()
        self.error = None

    def awaitTermination(self):  # noqa: N802
        assert self.ended.wait(WAIT_S)
        if self.error:
            raise self.error

    def stop(self):
        self.ended.set()

    def fail(self, error):
        self.error = error
        self.ended.set()


@pytest.fixture
def spark():
    return Spark()


@pytest.fixture
def group(rink_etcd):
    """Drivers that join one group; `join()` gives one more, with a session of its own."""
    made = []

    class Group:
        def join(self, name="driver"):
            client = rink_etcd.client(name)
            session = rink.Session(client, ttl=5)
            member = rink.Rink(
                session, "drivers", name=name, initial_delay=0, rebalance_delay=0, leave_timeout=1
            )
            made.append((member, session))
            member.join()
            member.wait_settled(WAIT_S)
            return member, client

    yield Group()
    for member, session in made:
        member.leave()
        session.close_within(5.0)


@pytest.fixture
def driver(group, spark):
    """A runner of one driver that has all roles."""
    member, client = group.join()
    with JobRunner(spark, member) as jobs:
        jobs.client = client
        yield jobs


# ── one job ──────────────────────────────────────────────────────────────────────────────────────


def test_a_job_whose_role_is_mine_runs_under_its_own_tag(driver, spark):
    job = driver.run("BTC/ETH, daily", lambda job: (job.token, spark.sparkContext.tags.here))
    assert job.state is State.SUCCEEDED
    assert job.result() == (job.token, {f"rink-BTC%2FETH%2C%20daily-{job.token}"})
    assert driver.jobs == []
    assert spark.made_active_in == ["rink-job-BTC/ETH, daily"]


def test_a_job_that_another_has_started_has_not_its_tag(spark):
    spark.sparkContext.addJobTag("the user's")
    spark.sparkContext.addJobTag(
        Tag(spark, "one", 5).name
    )  # as an InheritableThread begins with it
    with Tag(spark, "two", 7).on_this_thread():
        assert spark.sparkContext.getJobTags() == {"the user's", "rink-two-7"}
    assert spark.sparkContext.getJobTags() == {"the user's"}


def test_one_whose_role_is_anothers_does_not(group, spark):
    one, _ = group.join("one")
    two, _ = group.join("two")
    its = next(f"role-{n}" for n in range(99) if rink.rank_of(f"role-{n}", 2) == 1)
    two.await_role(its, WAIT_S).release()  # it is ranked by now
    one.wait_settled(WAIT_S)
    ran = []
    with JobRunner(spark, one) as first, JobRunner(spark, two) as second:
        for n in range(20):
            for jobs in (first, second):
                jobs.run(f"job-{n}", lambda job: ran.append(job.id))
    assert Counter(ran) == {f"job-{n}": 1 for n in range(20)}


def test_a_job_that_runs_here_is_not_started_again(driver):
    may_end = threading.Event()
    job = driver.start("a", lambda _: may_end.wait(WAIT_S))
    assert driver.start("a", print) is None
    assert driver.jobs == [job]
    may_end.set()
    assert job.result() is True
    assert driver.run("a", lambda _: 7).result() == 7


def test_what_the_function_raised_is_given_to_who_asks(driver):
    job = driver.run("a", lambda _: 1 / 0)
    assert job.state is State.FAILED
    with pytest.raises(ZeroDivisionError):
        job.result()
    assert isinstance(job.error, ZeroDivisionError)


def test_a_job_is_started_once(driver):
    job = driver.run("a", lambda _: None)
    with pytest.raises(UsageError, match="started before"):
        job.start()


def test_on_loss_its_spark_jobs_are_cancelled_until_it_returns_and_then_the_role_is_let_go(
    group, spark
):
    member, client = group.join()
    jobs = JobRunner(spark, member)
    context = spark.sparkContext

    def stubborn(job):
        assert job.lost.wait(WAIT_S)
        while len(context.cancelled) < 3:  # it starts one Spark job after the other
            assert context.was_cancelled.wait(WAIT_S)
            context.was_cancelled.clear()
        assert member.get_role("a") is None
        job.raise_if_lost()

    job = jobs.start("a", stubborn)
    client.cut()
    assert job.wait(WAIT_S)
    assert job.state is State.LOST
    assert set(context.cancelled) == {f"rink-a-{job.token}"}
    assert len(context.cancelled) >= 3
    with pytest.raises(RoleLost, match="job 'a' was ended"):
        job.result()
    client.heal()
    jobs.close()


def test_a_loss_after_the_end_changes_nothing(driver, spark):
    job = driver.run("a", lambda _: 7)
    before = list(spark.sparkContext.cancelled)
    job.cancel()
    assert job.result() == 7
    assert spark.sparkContext.cancelled == before


@pytest.mark.parametrize("returns", [True, False])
def test_what_threads_that_it_left_behind_do_is_cancelled_before_its_role_is_let_go(
    driver, spark, monkeypatch, returns
):
    context, held = spark.sparkContext, []

    def cancelled(tag):
        held.append((tag, job[0].role.is_held))

    monkeypatch.setattr(context, "cancelJobsWithTag", cancelled)
    job = []

    def function(mine):
        job.append(mine)
        return 7 if returns else 1 / 0

    done = driver.run("a", function)
    assert done.state is (State.SUCCEEDED if returns else State.FAILED)
    assert held == [(f"rink-a-{done.token}", True)]


def test_one_that_hides_its_loss_is_lost_all_the_same(driver):
    job = driver.start("a", lambda job: job.lost.wait(WAIT_S))
    job.cancel()
    assert job.wait(WAIT_S)
    assert job.state is State.LOST
    with pytest.raises(RoleLost):
        job.result()


def test_one_that_failed_has_failed_also_when_its_runner_is_closed(group, spark):
    member, _ = group.join()
    with JobRunner(spark, member) as jobs:
        job = jobs.run("a", lambda _: 1 / 0)
    assert job.state is State.FAILED


def test_one_that_is_cancelled_before_it_starts_ends(group, spark):
    member, _ = group.join()
    job = Job(spark, member.get_role("a"), lambda job: job.lost.wait(WAIT_S))
    job.cancel()
    job.start()
    assert job.wait(WAIT_S)
    assert member.get_role("a").release() is None


def test_one_that_cannot_start_lets_go_of_its_role(group, spark, monkeypatch):
    def refuses(*_, **__):
        raise ConnectionError("the JVM is gone")

    monkeypatch.setattr("pyspark.InheritableThread.start", refuses)
    member, _ = group.join()
    with JobRunner(spark, member) as jobs:
        job = jobs.run("a", print)
        with pytest.raises(ConnectionError):
            job.result()
        assert member.owns("a")
        assert jobs.run("a", print) is not None


def test_what_is_to_be_stopped_on_a_loss_is_stopped_also_when_it_comes_late(driver, spark):
    stopped, context = threading.Event(), spark.sparkContext

    def begins_slowly(job):
        while len(context.cancelled) < 3:  # by now it was looked for
            assert context.was_cancelled.wait(WAIT_S)
            context.was_cancelled.clear()
        job.on_loss(stopped.set)
        assert stopped.wait(WAIT_S)
        raise RuntimeError("ended")

    job = driver.start("a", begins_slowly)
    job.cancel()
    assert job.wait(WAIT_S)
    assert job.state is State.LOST


def test_a_runner_that_is_closed_ends_its_jobs_and_takes_no_more(group, spark):
    member, _ = group.join()
    jobs = JobRunner(spark, member)
    job = jobs.start("a", lambda job: spark.sparkContext.was_cancelled.wait(WAIT_S) and 1 / 0)
    jobs.close()
    assert job.state is State.LOST
    for call in (jobs.start, jobs.run, jobs.watch):
        with pytest.raises(ClosedError):
            call("b", print)
    assert member.owns("a")


def test_a_query_whose_function_is_given_after_the_end_is_refused(group, spark):
    member, _ = group.join()
    jobs = JobRunner(spark, member)
    declare = jobs.query("a")
    jobs.close()
    with pytest.raises(ClosedError):
        declare(print)
    assert not jobs.queries


@pytest.mark.parametrize("kind", [queries.Query, watching.Watch])
def test_what_begins_while_its_runner_is_closed_ends_with_it(group, spark, monkeypatch, kind):
    member, _ = group.join()
    jobs = JobRunner(spark, member)
    begin, ended = kind.start, threading.Event()

    def closed_before(started):
        closing = threading.Thread(target=lambda: (jobs.close(WAIT_S), ended.set()))
        closing.start()
        closing.join(0.05)  # it would be through by now, if it did not wait
        begin(started)

    monkeypatch.setattr(kind, "start", closed_before)
    if kind is queries.Query:
        jobs.query("a")(lambda job: job.lost.wait())
    else:
        jobs.watch(list, print)
    assert ended.wait(WAIT_S)


def test_a_function_that_looks_at_its_loss_sees_that_its_runner_is_closed(group, spark):
    member, _ = group.join()
    jobs = JobRunner(spark, member)
    job = jobs.start("a", lambda job: job.lost.wait(WAIT_S))
    jobs.close()
    assert job.state is State.LOST
    assert job._result is True


def test_what_returns_at_its_loss_is_lost_and_has_not_succeeded(driver):
    def returns(job):
        job.cancel()
        return 7

    job = driver.run("a", returns)
    assert job.state is State.LOST
    with pytest.raises(RoleLost):
        job.result()


def test_what_returns_after_the_deadline_before_anybody_was_told_is_lost(driver):
    class Role:
        name, token, is_held, lost = "a", 1, True, threading.Event()

        def release(self):
            pass

    Role.lost.then = Role.lost.forget = lambda _: None

    def frozen(job):
        job.role.is_held = False

    job = Job(driver.spark, Role(), frozen)
    job.start()
    assert job.wait(WAIT_S)
    assert job.state is State.LOST


def test_closing_waits_for_all_that_does_not_return_together(group, spark, caplog):
    member, _ = group.join()
    jobs = JobRunner(spark, member)
    may_end = threading.Event()
    for name in "abcdefgh":
        jobs.start(name, lambda _: may_end.wait(WAIT_S))
    begun = time.monotonic()
    jobs.close(timeout=0.5)
    assert time.monotonic() - begun < 2
    assert caplog.text.count("still runs after 0.5 s") == 8
    may_end.set()


def test_jobs_that_have_ended_are_not_kept(driver):
    for n in range(10):
        driver.run(f"job-{n}", lambda _: None)
    assert len(driver._jobs) == 1


def test_a_job_and_a_query_have_names_of_their_own(driver, quick):
    may_end, starts = threading.Event(), Started()
    driver.start("a", lambda _: may_end.wait(WAIT_S))
    with pytest.raises(ConfigError, match="there is a job 'a' already"):
        driver.query("a")(starts)
    may_end.set()
    driver.query("b")(starts)
    starts.wait_for(1)
    with pytest.raises(ConfigError, match="there is a query of this name"):
        driver.run("b", print)


# ── a driver that can run nothing any more ───────────────────────────────────────────────────────


def test_a_driver_whose_jvm_is_gone_leaves_and_another_has_its_query(group, spark, quick):
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
            with pytest.raises(SparkStopped, match="start this driver anew"):
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
    with pytest.raises(ClosedError, match="start this driver anew"):  # who begins more is told, too
        driver.start("b", print)


def test_one_that_finds_so_by_its_list_of_jobs_leaves_too(driver, quick):
    def list_pending_jobs():  # by Spark
        driver.spark.sparkContext.is_stopped = True
        raise ConnectionRefusedError("the JVM is gone")

    driver.watch(list_pending_jobs, lambda _: None, every=0.05)
    with pytest.raises(SparkStopped):
        driver.wait(WAIT_S)


def test_a_job_that_failed_for_another_reason_ends_no_driver(driver):
    with pytest.raises(ZeroDivisionError):
        driver.run("a", lambda _: 1 / 0).result()
    assert driver.run("b", lambda _: 1).result() == 1
    assert not driver.wait(0)


def test_a_group_that_gives_no_role_any_more_ends_the_runner(group, spark, monkeypatch):
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


def test_a_runner_takes_a_rink_of_the_blocking_face(spark):
    with pytest.raises(ConfigError, match="the blocking one"):
        JobRunner(spark, object())


# ── a list of jobs ───────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(watching, "LONGEST_PAUSE_S", 0.01)
    monkeypatch.setattr(queries, "LONGEST_PAUSE_S", 0.01)
    monkeypatch.setattr(queries, "_LOOKS_S", 0.05)


def test_listed_jobs_run_once_each_and_no_more_than_so_many_beside_each_other(driver, quick):
    pending, done = {f"job-{n}" for n in range(12)}, []
    running, most, lock, all_done = set(), [0], threading.Lock(), threading.Event()

    def work(job):
        with lock:
            running.add(job.id)
            most[0] = max(most[0], len(running))
        with lock:
            running.remove(job.id)
            pending.remove(job.id)
            done.append(job.id)
            if not pending:
                all_done.set()

    watch = driver.watch(lambda: sorted(pending), work, every=0.05, at_once=3)
    assert all_done.wait(WAIT_S)
    watch.cancel()
    assert watch.wait(WAIT_S)
    assert Counter(done) == {f"job-{n}": 1 for n in range(12)}
    assert 1 <= most[0] <= 3


def test_a_job_that_fails_is_tried_again_after_a_pause(driver, quick, caplog):
    tried, done = [], threading.Event()

    def work(job):
        tried.append(job.id)
        if len(tried) < 3:
            raise RuntimeError("on purpose")
        done.set()

    driver.watch(lambda: [] if done.is_set() else ["a"], work, every=0.05)
    assert done.wait(WAIT_S)
    assert tried == ["a"] * 3
    assert "job 'a' failed, tried again in" in caplog.text


def test_an_id_that_cannot_be_a_role_keeps_those_behind_it_from_nothing(driver, quick, caplog):
    done = threading.Event()
    driver.watch(lambda: ["", "a"], lambda _: done.set(), every=0.05)
    assert done.wait(WAIT_S)
    assert "job '' failed" in caplog.text


def test_a_list_that_cannot_be_seen_is_looked_at_again(driver, quick, caplog):
    looks, done = [], threading.Event()

    def list_pending_jobs():
        looks.append(1)
        if len(looks) < 3:
            raise OSError("no database")
        return [] if done.is_set() else ["a"]

    driver.watch(list_pending_jobs, lambda _: done.set(), every=0.05)
    assert done.wait(WAIT_S)
    assert "the list of pending jobs could not be seen" in caplog.text


# ── streaming queries ────────────────────────────────────────────────────────────────────────────


class Started:
    """The queries that a function started, and under which tokens."""

    def __init__(self):
        self.queries, self.tokens = [], []
        self.news = threading.Condition()

    def __call__(self, job):
        with self.news:
            self.queries.append(FakeQuery(f"run-{len(self.queries)}"))
            self.tokens.append(job.token)
            self.news.notify_all()
            return self.queries[-1]

    def wait_for(self, count):
        with self.news:
            assert self.news.wait_for(lambda: len(self.queries) >= count, WAIT_S)
        return self.queries[count - 1]


class Guard:
    def __init__(self):
        self.fences = []

    def raise_fence(self, fence):
        self.fences.append(fence)


def test_a_query_runs_while_its_role_is_held_and_its_fence_is_raised_before(driver, quick):
    starts, guard = Started(), Guard()

    @driver.query("delays", guards=[guard])
    def delays(job):
        assert guard.fences[-1] == Fence("delays", job.token)
        return starts(job)

    query = starts.wait_for(1)
    driver.close()
    assert query.ended.is_set()
    assert starts.tokens == [guard.fences[0].token]


def test_on_loss_what_it_is_at_is_cancelled_and_it_is_stopped_and_a_new_grant_starts_it(
    group, spark, quick
):
    member, client = group.join()
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


def test_one_that_fails_is_started_again_under_the_same_grant(driver, quick, caplog):
    starts = Started()
    driver.query("delays")(starts)
    starts.wait_for(1).fail(RuntimeError("[CONCURRENT_STREAM_LOG_UPDATE] on purpose"))
    starts.wait_for(2)
    assert starts.tokens[0] == starts.tokens[1]
    assert "is started again in" in caplog.text
    assert "CONCURRENT_STREAM_LOG_UPDATE" in caplog.text


def test_one_whose_function_ends_the_process_is_told_and_started_again_after_a_pause(
    driver, monkeypatch, caplog
):
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
    monkeypatch.setattr(queries, "LONGEST_PAUSE_S", longest)
    monkeypatch.setattr(queries, "backoff", lambda count, *_: failures.append(count) or 0.0)
    driver.query("delays")(starts)
    for n in range(1, 4):
        starts.wait_for(n).fail(RuntimeError("on purpose"))
    starts.wait_for(4)
    assert failures == counted


def test_a_query_that_pauses_after_a_failure_ends_at_once_when_it_is_closed(driver, monkeypatch):
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
    member, client = group.join()
    starts = Started()
    with JobRunner(spark, member) as jobs:
        caplog.set_level("INFO", logger="rink.spark")
        jobs.query("delays")(starts)
        starts.wait_for(1).stop()
        while "has ended by itself under token" not in caplog.text:
            assert not jobs.queries[0]._job.wait(0.01)
        client.cut()
        assert jobs.queries[0]._job.lost.wait(WAIT_S)
        client.heal()
        starts.wait_for(2)
    assert len(starts.queries) == 2
    assert starts.tokens[1] > starts.tokens[0]


def test_a_function_that_returns_no_query_is_told(driver, quick, caplog):
    called = threading.Semaphore(0)
    driver.query("delays")(lambda _: called.release())
    assert all(called.acquire(timeout=WAIT_S) for _ in range(2))
    driver.close()
    assert "it has to return the started query" in caplog.text


def test_the_cause_is_told_where_spark_wraps_a_traceback(driver, quick, caplog):
    starts = Started()
    driver.query("delays")(starts)
    starts.wait_for(1).fail(
        RuntimeError(
            "[STREAM_FAILED] Query [id = 7] terminated with exception: Traceback (most recent call last):\n"
            '  File "writers.py", line 7, in __init__\n    self.raise_fence()\n    ^^^^^^^^^\n'
            "rink.errors.StaleToken: sink 'totals' belongs to a later driver\n\tat org.apache.spark.Some(Some.scala:7)"
        )
    )
    starts.wait_for(2)
    assert (
        "RuntimeError: [STREAM_FAILED] Query [id = 7] terminated with exception: Traceback (most recent call last): … "
        "rink.errors.StaleToken: sink 'totals' belongs to a later driver\n"
    ) in caplog.text


def test_two_queries_of_one_name_are_refused(driver, quick):
    starts = Started()
    driver.query("delays")(starts)
    with pytest.raises(ConfigError, match="there is a query 'delays' already"):
        driver.query("delays")(starts)
    starts.wait_for(1)


def test_a_query_that_is_closed_while_it_starts_is_stopped(driver, quick):
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


def test_a_job_says_what_it_is(driver):
    job = driver.run("a", lambda _: None)
    assert repr(job) == f"<Job 'a' token={job.token} succeeded>"
    assert isinstance(job, Job)

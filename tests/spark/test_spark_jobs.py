"""Test jobs by roles, on an etcd in memory and a stand-in for Spark."""

import threading
from collections import Counter
from types import SimpleNamespace

import pytest
from jobs_support import SHORT_TTL_S, WAIT_S, Started
from pyspark import InheritableThread

import rink
from rink.errors import ClosedError, ConfigError, RoleLost, UsageError
from rink.spark.jobs import job_list, queries, runner
from rink.spark.jobs.job import Job, JobState
from rink.spark.jobs.runner import JobRunner
from rink.spark.jobs.tags import Tag


def test_job_whose_role_is_mine_runs_under_its_own_tag(driver, spark):
    job = driver.run("BTC/ETH, daily", lambda job: (job.token, spark.sparkContext.tags.here))
    assert job.state is JobState.SUCCEEDED
    assert job.result() == (job.token, {f"rink-BTC%2FETH%2C%20daily-{job.token}"})
    assert driver.jobs == []
    assert spark.made_active_in == ["rink-job-BTC/ETH, daily"]


def test_job_that_another_has_started_has_not_its_tag(spark):
    spark.sparkContext.addJobTag("the user's")
    spark.sparkContext.addJobTag(Tag(spark, "one", 5).name)  # an InheritableThread begins with it
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


def test_job_that_runs_here_is_not_started_again(driver):
    may_end = threading.Event()
    job = driver.start("a", lambda _: may_end.wait(WAIT_S))
    assert driver.start("a", print) is None
    assert driver.jobs == [job]
    may_end.set()
    assert job.result() is True
    assert driver.run("a", lambda _: 7).result() == 7


def test_what_the_function_raised_is_given_to_who_asks(driver):
    job = driver.run("a", lambda _: 1 / 0)
    assert job.state is JobState.FAILED
    with pytest.raises(ZeroDivisionError):
        job.result()
    assert isinstance(job.error, ZeroDivisionError)


def test_job_is_started_once(driver):
    job = driver.run("a", lambda _: None)
    with pytest.raises(UsageError, match="started before"):
        job.start()


def test_loss_cancels_spark_jobs_until_return_then_releases_the_role(group, spark):
    member, client = group.join(ttl=SHORT_TTL_S)
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
    assert job.state is JobState.LOST
    assert set(context.cancelled) == {f"rink-a-{job.token}"}
    assert len(context.cancelled) >= 3
    with pytest.raises(RoleLost, match="job 'a' was ended"):
        job.result()
    client.heal()
    jobs.close()


def test_loss_after_the_end_changes_nothing(driver, spark):
    job = driver.run("a", lambda _: 7)
    before = list(spark.sparkContext.cancelled)
    job.cancel()
    assert job.result() == 7
    assert spark.sparkContext.cancelled == before


@pytest.mark.parametrize("returns", [True, False])
def test_jobs_of_threads_left_behind_are_cancelled_before_the_release(
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
    assert done.state is (JobState.SUCCEEDED if returns else JobState.FAILED)
    assert held == [(f"rink-a-{done.token}", True)]


def test_lost_of_a_job_that_has_ended_is_set_before_its_role_is_let_go(driver):
    jobs, seen = [], []

    def function(job):
        jobs.append(job)
        job.role.lost.then(lambda: seen.append(job.lost.is_set()))
        return 7

    assert driver.run("a", function).state is JobState.SUCCEEDED
    assert jobs[0].lost.is_set()
    assert seen == [True]


def test_one_that_hides_its_loss_is_lost_all_the_same(driver):
    job = driver.start("a", lambda job: job.lost.wait(WAIT_S))
    job.cancel()
    assert job.wait(WAIT_S)
    assert job.state is JobState.LOST
    with pytest.raises(RoleLost):
        job.result()


def test_one_that_failed_has_failed_also_when_its_runner_is_closed(group, spark):
    member, _ = group.join()
    with JobRunner(spark, member) as jobs:
        job = jobs.run("a", lambda _: 1 / 0)
    assert job.state is JobState.FAILED


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
        assert member.can_take("a")
        assert jobs.run("a", print) is not None


@pytest.mark.parametrize("moment", ["before the function", "amid the function"])
def test_ctrl_c_while_a_job_is_being_started_ends_it_and_is_passed_on(
    group, spark, monkeypatch, moment
):
    """The role is released when the function has returned, if it was called."""
    began, may_end, plain = threading.Event(), threading.Event(), InheritableThread.start
    roles = []

    def interrupted(thread):
        if moment == "amid the function":
            plain(thread)
            assert began.wait(WAIT_S)
        raise KeyboardInterrupt

    def function(job):
        roles.append(job.role)
        began.set()
        assert job.lost.wait(WAIT_S)
        assert may_end.wait(WAIT_S)

    monkeypatch.setattr("pyspark.InheritableThread.start", interrupted)
    member, _ = group.join()
    with JobRunner(spark, member) as jobs:
        with pytest.raises(KeyboardInterrupt):
            jobs.start("a", function)
        (job,) = jobs._jobs.values()
        if moment == "amid the function":
            assert not job.wait(0.1)
            assert roles[0].is_held
        may_end.set()
        assert job.wait(WAIT_S)
        assert len(roles) == (moment == "amid the function")


def test_job_that_nobody_can_watch_lets_go_of_its_role_and_is_not_begun(group, spark, monkeypatch):
    def no_more(_):
        raise RuntimeError("can't start new thread")

    member, _ = group.join()
    ran = []
    with JobRunner(spark, member) as jobs:
        with monkeypatch.context() as patch:
            patch.setattr("rink.spark.jobs.job.threading.Thread.start", no_more)
            with pytest.raises(RuntimeError):
                jobs.start("a", ran.append)
        assert ran == []
        assert jobs.jobs == []
        with member.await_role("a", WAIT_S) as role:
            assert len(member.status().held) == 1
            assert role.is_held


def test_query_declared_while_a_job_of_its_name_starts_is_alone(driver, monkeypatch):
    plain, starts, ran = driver._rink.get_role, Started(), []

    def get_role(name):
        driver.query(name)(starts)
        return plain(name)

    monkeypatch.setattr(driver._rink, "get_role", get_role)
    with pytest.raises(ConfigError, match="there is a query of this name"):
        driver.start("a", ran.append)
    starts.wait_for(1)
    assert ran == []


def test_stop_that_is_registered_after_the_loss_is_called(driver, spark):
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
    assert job.state is JobState.LOST


def test_runner_that_is_closed_ends_its_jobs_and_takes_no_more(group, spark):
    member, _ = group.join()
    jobs = JobRunner(spark, member)
    job = jobs.start("a", lambda job: spark.sparkContext.was_cancelled.wait(WAIT_S) and 1 / 0)
    jobs.close()
    assert job.state is JobState.LOST
    for call, what in ((jobs.start, "b"), (jobs.run, "b"), (jobs.watch, list)):
        with pytest.raises(ClosedError):
            call(what, print)
    assert member.can_take("a")


@pytest.mark.parametrize("call", ["run", "start"])
def test_runner_closed_while_a_role_is_taken_refuses_the_job(driver, monkeypatch, call):
    """None would mean that another driver runs it."""
    plain, ran = driver._rink.get_role, []

    def get_role(name):
        role = plain(name)
        driver.close()
        return role

    monkeypatch.setattr(driver._rink, "get_role", get_role)
    with pytest.raises(ClosedError):
        getattr(driver, call)("a", ran.append)
    assert ran == []
    assert driver._rink.can_take("a")


def test_query_whose_function_is_given_after_the_end_is_refused(group, spark):
    member, _ = group.join()
    jobs = JobRunner(spark, member)
    declare = jobs.query("a")
    jobs.close()
    with pytest.raises(ClosedError):
        declare(print)
    assert not jobs.queries


@pytest.mark.parametrize("kind", [queries.Query, job_list.JobListWatch])
def test_what_begins_while_its_runner_is_closed_ends_with_it(group, spark, monkeypatch, kind):
    member, _ = group.join()
    jobs = JobRunner(spark, member)
    begin, ended = kind.start, threading.Event()

    def closed_before(started):
        closing = threading.Thread(target=lambda: (jobs.close(WAIT_S), ended.set()))
        closing.start()
        closing.join(0.05)  # without the wait, it would be through by now
        begin(started)

    monkeypatch.setattr(kind, "start", closed_before)
    if kind is queries.Query:
        jobs.query("a")(lambda job: job.lost.wait())
    else:
        jobs.watch(list, print)
    assert ended.wait(WAIT_S)


def test_function_that_looks_at_its_loss_sees_that_its_runner_is_closed(group, spark):
    member, _ = group.join()
    jobs = JobRunner(spark, member)
    job = jobs.start("a", lambda job: job.lost.wait(WAIT_S))
    jobs.close()
    assert job.state is JobState.LOST
    assert job._result is True


def test_what_returns_at_its_loss_is_lost_and_has_not_succeeded(driver):
    def returns(job):
        job.cancel()
        return 7

    job = driver.run("a", returns)
    assert job.state is JobState.LOST
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
    assert job.state is JobState.LOST


def test_closing_waits_for_all_that_does_not_return_together(group, spark, monkeypatch, caplog):
    """A clock that only these waits move."""
    member, _ = group.join()
    jobs = JobRunner(spark, member)
    may_end, clock = threading.Event(), [1000.0]

    def wait(_, timeout):
        clock[0] += timeout
        return False

    for name in "abcdefgh":
        jobs.start(name, lambda _: may_end.wait(WAIT_S))
    with monkeypatch.context() as patch:
        patch.setattr(runner, "time", SimpleNamespace(monotonic=lambda: clock[0]))
        patch.setattr(Job, "wait", wait)
        jobs.close(timeout=0.5)
    assert clock == [1000.5]
    assert caplog.text.count("still runs 0.5 s after the close") == 8
    may_end.set()


def test_jobs_that_have_ended_are_not_kept(driver):
    for n in range(10):
        driver.run(f"job-{n}", lambda _: None)
    assert len(driver._jobs) == 1


def test_job_and_a_query_have_names_of_their_own(driver, quick):
    may_end, starts = threading.Event(), Started()
    driver.start("a", lambda _: may_end.wait(WAIT_S))
    with pytest.raises(ConfigError, match="there is a job 'a' already"):
        driver.query("a")(starts)
    may_end.set()
    driver.query("b")(starts)
    starts.wait_for(1)
    with pytest.raises(ConfigError, match="there is a query of this name"):
        driver.run("b", print)


async def compute_nothing(job): ...


def test_runner_async_function_raises(driver):
    """A job would count as done, and nothing would have run."""
    for begin in (driver.start, driver.run):
        with pytest.raises(ConfigError, match="job 'a': function 'compute_nothing' is async"):
            begin("a", compute_nothing)
    with pytest.raises(ConfigError, match="watch: function 'compute_nothing' is async"):
        driver.watch(list, compute_nothing)

"""Test jobs of drivers that have just joined: they wait for a rank."""

import threading
import time
from collections import Counter

import pytest
from jobs_support import SHORT_TTL_S, TTL_S, WAIT_S, Spark

import rink
from rink.errors import ClosedError, ConfigError, RoleTimeout
from rink.spark.jobs.job import JobState
from rink.spark.jobs.runner import JobRunner


@pytest.fixture
def newcomers(rink_etcd):
    """Join a driver and return at once, as `with rink.Rink(...)` does."""
    made = []

    def join(name="driver", ttl=TTL_S, **settings):
        client = rink_etcd.client(name)
        session = rink.Session(client, ttl=ttl)
        delays = {"initial_delay": 0.0, "rebalance_delay": 0.0} | settings
        member = rink.Rink(session, "drivers", name=name, **delays)
        made.append((member, session))
        member.join()
        return member, client

    yield join
    for member, session in made:
        member.leave()
        session.close(timeout=5.0)


@pytest.mark.parametrize("call", ["run", "start"])
def test_runner_right_after_joining_runs_the_job(newcomers, spark, call):
    for n in range(6):
        member, _ = newcomers(f"driver-{n}")
        with JobRunner(spark, member) as jobs:
            job = getattr(jobs, call)("nightly", lambda job: job.token)
            assert job.result() == job.token
        member.leave()


@pytest.mark.parametrize("call", ["run", "start"])
def test_runner_that_is_not_ranked_in_time_raises_role_timeout(newcomers, spark, call):
    newcomers("first")[0].wait_ranked(WAIT_S)
    late, _ = newcomers("late", rebalance_delay=600.0)
    with (
        JobRunner(spark, late) as jobs,
        pytest.raises(RoleTimeout, match=r"'late' was not ranked in group 'drivers' within 0.1 s"),
    ):
        getattr(jobs, call)("nightly", print, timeout=0.1)


@pytest.mark.parametrize("timeout", [-1, "soon", float("nan"), True])
def test_runner_timeout_that_is_no_duration_is_refused(driver, timeout):
    for call in (driver.run, driver.start):
        with pytest.raises(ConfigError, match="timeout"):
            call("a", print, timeout=timeout)


def test_start_after_the_first_ranking_does_not_block(newcomers, spark):
    member, client = newcomers(ttl=SHORT_TTL_S)
    with JobRunner(spark, member) as jobs:
        assert jobs.start("a", lambda _: 1).result() == 1
        client.cut()
        while member.session_remaining > 0:  # no role can be granted by now
            assert not jobs.wait(0.05)
        begun = time.monotonic()
        assert jobs.start("a", print) is None
        assert time.monotonic() - begun < WAIT_S, "else it would wait for minutes"
        client.heal()
        assert jobs.run("a", lambda _: 2).result() == 2  # waits until it is ranked again


def test_run_of_a_role_that_is_handed_over_waits_for_it(newcomers, spark):
    """The driver before it had the role when it moved; the loss ends its job."""
    one, _ = newcomers("one")
    its = next(f"job-{n}" for n in range(99) if rink.rank_of(f"job-{n}", 2) == 1)
    ended, may_end = threading.Event(), threading.Event()

    def stubborn(job):
        job.lost.wait(WAIT_S)
        ended.set()
        may_end.wait(WAIT_S)

    with JobRunner(spark, one) as first:
        before = first.start(its, stubborn)
        two, _ = newcomers("two")
        with JobRunner(Spark(), two) as second:
            assert ended.wait(WAIT_S)
            said = ""
            while "one: has not released it yet" not in said:  # it may not be ranked yet
                with pytest.raises(RoleTimeout) as caught:
                    second.run(its, print, timeout=0.2)
                said = str(caught.value)
            threading.Timer(0.2, may_end.set).start()
            after = second.run(its, lambda job: job.token)
            assert before.wait(WAIT_S)
            assert before.state is JobState.LOST
            assert after.result() > before.token


def test_run_that_waits_for_a_rank_ends_when_its_runner_is_closed(newcomers, spark):
    newcomers("first")[0].wait_ranked(WAIT_S)
    late, _ = newcomers("late", rebalance_delay=600.0)
    jobs, ended = JobRunner(spark, late), []

    def waits():
        with pytest.raises(ClosedError):
            jobs.run("nightly", print)
        ended.append(True)

    thread = threading.Thread(target=waits)
    thread.start()
    thread.join(0.1)
    jobs.close()
    thread.join(WAIT_S)
    assert ended


def test_run_that_waits_for_a_rank_ends_when_its_group_is_left(newcomers, spark):
    newcomers("first")[0].wait_ranked(WAIT_S)
    late, _ = newcomers("late", rebalance_delay=600.0)
    threading.Timer(0.1, late.leave).start()
    with JobRunner(spark, late) as jobs, pytest.raises(ClosedError, match="has been left"):
        jobs.run("nightly", print)


# ── a list of jobs ───────────────────────────────────────────────────────────────────────────────


def test_watch_begins_as_soon_as_its_driver_is_ranked(newcomers, spark):
    member, _ = newcomers()
    done = threading.Event()
    with JobRunner(spark, member) as jobs:
        jobs.watch(lambda: [] if done.is_set() else ["a"], lambda _: done.set(), every=600)
        assert done.wait(WAIT_S)


def test_watch_does_not_ask_for_the_list_before_its_driver_is_ranked(newcomers, spark):
    newcomers("first")[0].wait_ranked(WAIT_S)
    late, _ = newcomers("late", rebalance_delay=600.0)
    looks = []
    with JobRunner(spark, late) as jobs:
        jobs.watch(lambda: looks.append(1) or ["a"], print, every=0.01)
        assert not jobs.wait(0.2)
    assert looks == []


def test_watch_looks_again_when_the_roles_of_another_driver_come_to_it(newcomers, spark):
    one, _ = newcomers("one")
    one.wait_ranked(WAIT_S)
    two, _ = newcomers("two")
    its = next(f"job-{n}" for n in range(99) if rink.rank_of(f"job-{n}", 2) == 0)
    pending, done = {its}, threading.Event()
    two.wait_ranked(WAIT_S)
    with JobRunner(spark, two) as jobs:
        looked = threading.Event()
        jobs.watch(
            lambda: looked.set() or sorted(pending),
            lambda job: (pending.discard(job.id), done.set()),
            every=600,
        )
        assert looked.wait(WAIT_S)
        assert not done.wait(0.1)
        one.leave()
        assert done.wait(WAIT_S)


# ── nights ───────────────────────────────────────────────────────────────────────────────────────


def test_nightly_job_on_three_drivers_runs_once_each_night(newcomers):
    """Cron starts all three each night; a table lists the finished nights."""
    done, runs, results = set(), Counter(), Counter()

    def driver(night, number):
        def build(job):
            if night not in done:
                runs[night] += 1
                done.add(night)

        member, _ = newcomers(f"{night}/{number}", scheme="first", initial_delay=0.05)
        with JobRunner(Spark(), member) as jobs:
            results[jobs.run(f"report/{night}", build) is not None] += 1
        member.leave()

    for night in range(20):
        gaps = (0.0, 0.01 * (night % 4), 0.03 * (night % 3))
        threads = [threading.Timer(gap, driver, (night, n)) for n, gap in enumerate(gaps)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    assert runs == dict.fromkeys(range(20), 1)
    assert results.total() == 60

"""Test lists of jobs, on an etcd in memory and a stand-in for Spark."""

import queue
import threading
from collections import Counter

import pytest
from jobs_support import WAIT_S

from rink.errors import ClosedError, ConfigError


def test_listed_jobs_run_once_each(driver, quick):
    pending, done = {f"job-{n}" for n in range(12)}, []
    lock, all_done = threading.Lock(), threading.Event()

    def work(job):
        with lock:
            pending.remove(job.id)
            done.append(job.id)
            if not pending:
                all_done.set()

    watch = driver.watch(lambda: sorted(pending), work, every=0.05, at_once=3)
    assert all_done.wait(WAIT_S)
    watch.cancel()
    assert watch.wait(WAIT_S)
    assert Counter(done) == {f"job-{n}": 1 for n in range(12)}


def test_no_more_than_so_many_run_beside_each_other(driver, quick):
    running, news, may_end = [], threading.Condition(), threading.Event()
    looks = 0

    def list_pending_jobs():
        nonlocal looks
        with news:
            looks += 1
            news.notify_all()
        return [f"job-{n}" for n in range(12)]

    def work(job):
        with news:
            running.append(job.id)
            news.notify_all()
        assert may_end.wait(WAIT_S)

    driver.watch(list_pending_jobs, work, every=0.01, at_once=3)
    with news:
        assert news.wait_for(lambda: len(running) == 3, WAIT_S)
        seen = looks
        assert news.wait_for(lambda: looks >= seen + 3, WAIT_S)
        assert len(running) == 3
    may_end.set()


def test_job_that_fails_is_tried_again_after_a_pause(driver, quick, caplog):
    tried, done = [], threading.Event()

    def work(job):
        tried.append(job.id)
        if len(tried) < 3:
            raise RuntimeError("on purpose")
        done.set()

    driver.watch(lambda: [] if done.is_set() else ["a"], work, every=0.05)
    assert done.wait(WAIT_S)
    assert tried == ["a"] * 3
    assert "job 'a' failed, retrying in" in caplog.text


def test_id_that_cannot_be_a_role_keeps_those_behind_it_from_nothing(driver, quick, caplog):
    done = threading.Event()
    driver.watch(lambda: ["", "a"], lambda _: done.set(), every=0.05)
    assert done.wait(WAIT_S)
    assert "job '' failed" in caplog.text


@pytest.mark.parametrize(
    "error", [OSError("no database"), SystemExit(3), ClosedError("another group's member has left")]
)
def test_list_that_cannot_be_seen_is_looked_at_again(driver, quick, caplog, error):
    looks, done = [], threading.Event()

    def list_pending_jobs():
        looks.append(1)
        if len(looks) < 3:
            raise error
        return [] if done.is_set() else ["a"]

    driver.watch(list_pending_jobs, lambda _: done.set(), every=0.05)
    assert done.wait(WAIT_S)
    assert caplog.text.count("the list of pending jobs could not be read") == 2


@pytest.mark.parametrize("jobs", [["a", "b"], "ab", None, {"a": 1}])
def test_list_in_place_of_a_function_is_refused(driver, jobs):
    with pytest.raises(ConfigError, match="list_pending_jobs"):
        driver.watch(jobs, lambda job: None)


def test_generator_of_jobs_is_a_list(driver, quick):
    ids = queue.Queue()

    def list_pending_jobs():
        yield "a"

    driver.watch(list_pending_jobs, lambda job: ids.put(job.id), every=600)
    assert ids.get(timeout=WAIT_S) == "a"


def test_async_list_of_jobs_is_refused(driver):
    async def list_pending_jobs():
        return []

    with pytest.raises(ConfigError, match=r"list_pending_jobs.*is async"):
        driver.watch(list_pending_jobs, lambda job: None)


@pytest.mark.parametrize("listed", ["night", b"night", None, 5])
def test_list_that_is_none_is_told_and_nothing_runs(driver, quick, caplog, listed):
    """The letters of a text are no jobs."""
    ran, looks = [], threading.Semaphore(0)

    def list_pending_jobs():
        looks.release()
        return listed

    driver.watch(list_pending_jobs, lambda job: ran.append(job.id), every=0.01)
    for _ in range(3):
        assert looks.acquire(timeout=WAIT_S)
    assert f"list_pending_jobs returned {listed!r}: it must return" in caplog.text
    assert ran == []


@pytest.mark.parametrize("wrong", [None, ("a", 1), b"a", ""])
def test_listed_job_whose_id_is_none_holds_no_other_back(driver, quick, caplog, wrong):
    """Such as a row of a query instead of its first column."""
    ran, has_run = [], threading.Event()

    def work(job):
        ran.append(job.id)
        has_run.set()

    watch = driver.watch(lambda: [wrong, "b"], work, every=0.01)
    assert has_run.wait(WAIT_S)
    watch.cancel()
    assert watch.wait(WAIT_S)
    assert set(ran) == {"b"}
    assert f"job {wrong!r}" in caplog.text


def test_listed_numbers_are_ids_as_text(driver, quick):
    ids = queue.Queue()
    driver.watch(lambda: [7], lambda job: ids.put(job.id), every=600)
    assert ids.get(timeout=WAIT_S) == "7"

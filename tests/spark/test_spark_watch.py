"""Lists of jobs, on an etcd in memory and a stand-in for Spark."""

import threading
from collections import Counter

import pytest
from jobs_support import WAIT_S

from rink.errors import ClosedError


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


@pytest.mark.parametrize(
    "error", [OSError("no database"), SystemExit(3), ClosedError("another group's member has left")]
)
def test_a_list_that_cannot_be_seen_is_looked_at_again(driver, quick, caplog, error):
    looks, done = [], threading.Event()

    def list_pending_jobs():
        looks.append(1)
        if len(looks) < 3:
            raise error
        return [] if done.is_set() else ["a"]

    driver.watch(list_pending_jobs, lambda _: done.set(), every=0.05)
    assert done.wait(WAIT_S)
    assert caplog.text.count("the list of pending jobs could not be seen") == 2

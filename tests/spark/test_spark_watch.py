"""Lists of jobs, on an etcd in memory and a stand-in for Spark."""

import sys
import threading
from collections import Counter

from jobs_support import WAIT_S

from rink.errors import ClosedError


def test_listed_jobs_run_once_each(driver, quick):
    pending, done, lock, all_done = (
        {f"job-{n}" for n in range(12)},
        [],
        threading.Lock(),
        threading.Event(),
    )

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


def test_a_list_that_exits_is_told_and_looked_at_again(driver, quick, caplog):
    looks, done = [], threading.Event()

    def exits_once():
        looks.append(1)
        if len(looks) == 1:
            sys.exit(3)
        return ["a"]

    driver.watch(exits_once, lambda _: done.set(), every=0.05)
    assert done.wait(WAIT_S)
    assert "the list of pending jobs could not be seen" in caplog.text


def test_a_list_that_finds_something_else_closed_is_looked_at_again(driver, quick, caplog):
    looks, done = [], threading.Event()

    def of_another_group():
        looks.append(1)
        if len(looks) == 1:
            raise ClosedError("another thing of the user's is closed")
        return ["a"]

    driver.watch(of_another_group, lambda _: done.set(), every=0.05)
    assert done.wait(WAIT_S)
    assert "the list of pending jobs could not be seen" in caplog.text

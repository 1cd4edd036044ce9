"""Run the examples of the pages on a real Spark and Redis."""

import sys
import threading
import time
from pathlib import Path

import pytest

import rink
from rink.errors import RoleLost
from rink.spark import JobRunner, JobState

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "docs"))
from docs_support import ROOT, all_blocks, blocks, run

WAIT_S = 180
TESTED = {
    "spark-nightly.md": 2,
    "spark-hourly.md": 2,
    "spark-on-loss.md": 2,
    "spark-query-in-a-job.md": 1,
}
"""Return how many examples of each page this file tests."""


def until(told, timeout=WAIT_S):
    end = time.monotonic() + timeout
    while not told():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


class Page:
    """The examples of one page, and their names."""

    def __init__(self, request, shop, spark, folder, clients):
        self._request, self.shop, self.clients = request, shop, clients
        self.names = {
            "spark": spark,
            "folder": str(folder),
            "checkpoint": str(folder / "checkpoint"),
            "orders": shop.options(),
            "totals": shop.options("totals"),
        }

    def example(self, page, number, **names):
        """Run an example; return the names that exist in the end."""
        found = [one for one in blocks(ROOT / "docs" / page, "python") if one.needs == "spark"]
        assert len(found) == TESTED[page]
        return run(found[number], self._request, **self.names, **names)

    def send(self, numbers):
        self.shop.send([{"order_id": n, "customer": f"c{n % 7}"} for n in numbers])

    def written(self):
        return sorted(row["total"] for row in self.shop.every("totals"))


@pytest.fixture
def page(request, monkeypatch, rink_etcd, shop, spark, tmp_path):
    clients = []

    class Client:
        """A type as the real one is, since the session checks its etcd's type."""

        def __new__(cls, *_, **__):
            clients.append(rink_etcd.client())
            return clients[-1]

    monkeypatch.setattr("rink.session.Client", Client)
    shop.send([])
    shop.send([], stream="totals")
    return Page(request, shop, spark, tmp_path, clients)


@pytest.fixture
def jobs(page, spark):
    """Yield a driver that is alone in its group."""
    with (
        rink.Session(ttl=5) as session,
        rink.Rink(session, "drivers", leave_timeout=1.0) as r,
        JobRunner(spark, r) as jobs,
    ):
        yield jobs
        page.clients[0].heal()


def test_every_example_that_needs_spark_is_run_here():
    found = [block.page.name for block in all_blocks("python") if block.needs == "spark"]
    assert {name: found.count(name) for name in found} == TESTED


def test_nightly_page_writes_each_night_once(page, spark, tmp_path):
    for _ in range(2):  # cron of a second machine is late
        names = page.example("spark-nightly.md", 0)
        assert names["job"].state is JobState.SUCCEEDED
        stamps = {one.stat().st_mtime_ns for one in tmp_path.glob("2026-11-28/*.parquet")}
        assert page.names.setdefault("stamps", stamps) == stamps
    assert spark.read.parquet(str(tmp_path / "2026-11-28")).count() == 10


def test_nightly_page_lists_what_is_not_done(page, monkeypatch):
    done = []
    monkeypatch.setattr(JobRunner, "wait", lambda _: until(lambda: done))
    page.example("spark-nightly.md", 1, done=done)
    assert done == ["2026-11-28"]


def test_hourly_page_has_all_in_its_output(page, monkeypatch):
    page.send(range(100))
    monkeypatch.setattr(JobRunner, "wait", lambda _: until(lambda: len(page.written()) == 100))
    page.example("spark-hourly.md", 0)
    assert page.written() == list(range(100))


def test_hourly_page_runs_a_query_once(page):
    for night in range(2):
        page.send(range(100 * night, 100 * (night + 1)))
        names = page.example("spark-hourly.md", 1)
        assert names["query"].lastProgress.numInputRows == 100
        assert page.written() == list(range(100 * (night + 1)))


def test_on_loss_page_ends_the_program(page, jobs):
    begun = time.monotonic()
    job = page.example("spark-on-loss.md", 0, jobs=jobs)["job"]
    threading.Timer(0.5, page.clients[0].cut).start()
    with pytest.raises(RoleLost):
        job.result()
    assert time.monotonic() - begun < 100  # and not 600


def test_on_loss_page_looks_at_the_loss_in_python(page, jobs):
    assert page.example("spark-on-loss.md", 1, jobs=jobs)["uploaded"] == [1, 2, 3]


def test_query_in_a_job_page_returns_how_much_was_read(page, jobs):
    page.send(range(100))
    assert page.example("spark-query-in-a-job.md", 0, jobs=jobs)["job"].result() == 100
    assert page.written() == list(range(100))


def test_query_in_a_job_page_ends_the_query_on_a_loss(page, jobs, spark):
    page.send(range(100))
    page.names["orders"]["maxOffsetsPerTrigger"] = "1"  # otherwise it would take a minute
    cut = threading.Thread(target=lambda: (until(page.written), page.clients[0].cut()))
    cut.start()
    job = page.example("spark-query-in-a-job.md", 0, jobs=jobs)["job"]
    cut.join()
    with pytest.raises(RoleLost):
        job.result()
    assert 0 < len(page.written()) < 100
    assert spark.streams.active == []

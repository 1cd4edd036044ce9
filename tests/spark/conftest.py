"""Join drivers to one group on an etcd in memory, for tests of jobs."""

import pytest
from jobs_support import TTL_S, WAIT_S, Spark

import rink
from rink.spark.jobs import job_list, queries
from rink.spark.jobs.runner import JobRunner


@pytest.fixture
def spark():
    return Spark()


@pytest.fixture
def group(rink_etcd):
    """Yield a group of drivers; `join()` adds one with a session of its own."""
    made = []

    class Group:
        def join(self, name="driver", ttl=TTL_S):
            client = rink_etcd.client(name)
            session = rink.Session(client, ttl=ttl)
            member = rink.Rink(session, "drivers", name=name, initial_delay=0, rebalance_delay=0)
            made.append((member, session))
            member.join()
            member.wait_settled(WAIT_S)
            return member, client

    yield Group()
    for member, session in made:
        member.leave()
        session.close(timeout=5.0)


@pytest.fixture
def driver(group, spark):
    """Yield a runner of one driver that has all roles."""
    member, client = group.join()
    with JobRunner(spark, member) as jobs:
        jobs.client = client
        yield jobs


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(job_list, "MAX_PAUSE_S", 0.01)
    monkeypatch.setattr(queries, "MAX_PAUSE_S", 0.01)
    monkeypatch.setattr(queries, "_LOOK_INTERVAL_S", 0.05)

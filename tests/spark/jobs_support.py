"""Stand in for Spark, with functions and guards that record their calls."""

import threading

WAIT_S = 20

TTL_S = 60
"""The ttl of a session in tests where no lease must end.

Leases run on the real clock. With a short ttl they would end if the machine stood still for long.
"""

SHORT_TTL_S = 5
"""The ttl in tests that cut off etcd and wait for the deadline."""


class Context:
    """The calls of a SparkContext: tags of the thread, and cancels."""

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
    """A streaming query that ends when it is stopped, or made to fail."""

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


class Started:
    """The queries that a function started, and their tokens."""

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

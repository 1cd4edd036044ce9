"""Test a process that can start no thread for a while.

gRPC can start none either. The etcd is real.
"""

import time

import pytest
from members import Worker

from rink.testing.history import History

pytestmark = pytest.mark.waits

TTL_S = 5
WITHOUT_S = 4.0


def test_member_without_threads_while_etcd_restarts_is_back_soon(node, prefix):
    """A member without threads is back soon after etcd restarts.

    Streams that break meanwhile are opened again, each on a channel that gRPC reads.
    """
    worker = Worker(History(), "a", node.endpoint, prefix, roles=["x"], session={"ttl": TTL_S})
    try:
        worker.wait("gained")
        worker.ask("no threads")
        begin = time.monotonic()
        node.restart()
        time.sleep(max(begin + WITHOUT_S - time.monotonic(), 0.0))
        worker.ask("threads")
        took = worker.wait_renewed(TTL_S + 5.0)
        print(f"threads can be started again: renewed after {took:.2f} s")
        while worker.ask("held")["roles"] != ["x"]:
            assert time.monotonic() - begin < WITHOUT_S + TTL_S + 5.0
            time.sleep(0.05)
        worker.leave()
    finally:
        worker.close()

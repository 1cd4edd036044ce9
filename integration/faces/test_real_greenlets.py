"""Test processes whose threads gevent or eventlet has replaced.

They are refused at once, or they hold a role.
"""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.waits

GEVENT = "from gevent import monkey; monkey.patch_all({})"
INIT = "; import grpc.experimental.gevent as g; g.init_gevent()"
EVENTLET = (
    "import warnings; warnings.simplefilter('ignore'); import eventlet; eventlet.monkey_patch({})"
)

JOINS = """
import asyncio, sys, rink, rink.aio
url, prefix = sys.argv[1:]

async def on_asyncio():
    await rink.aio.Rink(rink.aio.Session(url, prefix=prefix), "g").join()

for join in (
    lambda: asyncio.run(on_asyncio()),
    lambda: rink.Rink(rink.Session(url, prefix=prefix), "g").join(),
):
    try:
        join()
    except rink.ConfigError as error:
        print("refused:", error)
"""

HOLDS = """
import sys, time, rink
url, prefix = sys.argv[1:]
with rink.Session(url, prefix=prefix, ttl=6) as session, rink.Rink(session, "g") as r:
    def deadline(): return time.monotonic() + r.session_remaining
    with r.await_role("x", timeout=60.0) as role:
        first, end = deadline(), time.monotonic() + 20
        while deadline() < first + 0.2 and time.monotonic() < end:
            time.sleep(0.05)
        print("renewed:", deadline() >= first + 0.2, "held:", role.is_held)
"""


def run(code, etcd_url, prefix):
    arguments = [sys.executable, "-c", code, etcd_url, prefix]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("patch", "says"),
    [
        (GEVENT.format(""), "gevent has replaced `threading`"),
        (GEVENT.format("queue=False") + INIT, "gevent has replaced `threading` but not `queue`"),
        (GEVENT.format("thread=False"), "gevent has replaced `queue` but not `threading`"),
        (EVENTLET.format(""), "eventlet has replaced `threading`"),
    ],
    ids=["gevent", "no-queue", "no-thread", "eventlet"],
)
def test_join_with_green_threads_is_refused_at_once(patch, says, etcd_url, prefix):
    """The join used to stand still for ever, in both faces."""
    assert run(patch + JOINS, etcd_url, prefix).count(f"refused: {says}") == 2


@pytest.mark.parametrize(
    "patch",
    [
        GEVENT.format("") + INIT,
        GEVENT.format("thread=False, queue=False"),
        EVENTLET.format("thread=False"),
    ],
    ids=["gevent-init", "gevent-no-threads", "eventlet-no-threads"],
)
def test_join_as_the_error_says_holds_a_role(patch, etcd_url, prefix):
    assert "renewed: True held: True" in run(patch + HOLDS, etcd_url, prefix)

"""Test the extra `etcd-rink[etcd3]`.

An application has a python3-etcd3 client, and our client uses its channel. The session over it is
tested here, and not with the faces, since it needs the same venv.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from rink.errors import ConfigError
from rink.etcd.client import Client
from rink.testing import local_etcd

ROOT = Path(__file__).parents[2]

THEIRS = """
import sys
import etcd3

host, port, user, password = sys.argv[1:5]
theirs = etcd3.client(host=host, port=int(port), user=user or None, password=password or None)
"""

CLIENT = """
import queue
from rink.errors import ClosedError
from rink.etcd.api import Compare, Put, TxnTarget, WatchOpened
from rink.etcd.client import Client

ours = Client.from_etcd3(theirs)

missing = (Compare(b"shared", TxnTarget.VERSION, 0),)
result = ours.txn(missing, (Put(b"shared", b"by rink"),))
assert result.succeeded
seen, renewed = queue.Queue(), queue.Queue()
watch = ours.watch(b"shared", b"", result.header.revision, seen.put)
assert isinstance(seen.get(timeout=60), WatchOpened)
assert seen.get(timeout=60).events[0].kv.value == b"by rink"
if not user:
    # With a password its own calls need TLS: it sends the token as call credentials.
    assert theirs.get("shared")[0] == b"by rink"
    theirs.put("shared", "by etcd3")
    assert seen.get(timeout=60).events[0].kv.value == b"by etcd3"
lease = ours.grant(10).lease
ours.keepalives(renewed.put).send(lease)
assert renewed.get(timeout=60).ttl == 10
ours.close()
try:
    ours.range(b"shared")
except ClosedError:
    pass
else:
    raise AssertionError("closed, and it answers")
# It is the application's: closing ours leaves it open.
if not user:
    assert theirs.get("shared")[0] == b"by etcd3"
theirs.close()
print("ok")
"""

SESSION = """
import asyncio
import time
import rink, rink.aio

settings = {"ttl": 5, "prefix": "theirs/"}
at_once = {"initial_delay": 0.0, "rebalance_delay": 0.0}

def keys():
    # With a password its own calls need TLS: it sends the token as call credentials.
    return None if user else [found.key for _, found in theirs.get_prefix("theirs/g/members/")]

with rink.Session(theirs, **settings) as session:
    with rink.Rink(session, "g", name="a", **at_once) as r:
        with r.await_role("x", 30) as first:
            assert first.is_held
            assert not first.lost.wait(2.0)
            end = time.monotonic() + 30
            while r.session_remaining < 3.0:  # at most 2.5 s, unless it was renewed meanwhile
                assert time.monotonic() < end
                time.sleep(0.05)
            assert keys() in (None, [b"theirs/g/members/a"])
    assert keys() in (None, [])

async def again():
    async with rink.aio.Session(theirs, **settings) as session:
        async with rink.aio.Rink(session, "g", name="b", **at_once) as r:
            async with r.await_role("x", 30) as role:
                return role.token

# It is the application's: closing the first session has left it open.
assert asyncio.run(again()) > first.token
assert keys() in (None, [])
theirs.close()
print("ok")
"""


@pytest.fixture(scope="module")
def with_etcd3(tmp_path_factory):
    """Return the Python of a venv with this project and its extra."""
    folder = tmp_path_factory.mktemp("etcd3") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    pip = [sys.executable, "-m", "pip", "--python", folder, "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", f"{ROOT}[etcd3]"], check=True, timeout=110)
    return folder / "bin" / "python"


def run(python, script, endpoint, tmp_path, user="", password=""):
    host, port = endpoint.removeprefix("http://").split(":")
    done = subprocess.run(
        [python, "-c", THEIRS + script, host, port, user, password],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == ["ok"]


USES = pytest.mark.parametrize("script", [CLIENT, SESSION], ids=["client", "session"])


@USES
def test_applications_etcd3_client_is_used_and_stays_open(with_etcd3, tmp_path, script):
    with local_etcd(fsync=False) as node:
        run(with_etcd3, script, node.endpoint, tmp_path)


@USES
def test_its_login_is_used(with_etcd3, tmp_path, script):
    with local_etcd(fsync=False, root_password="only here") as node:
        run(with_etcd3, script, node.endpoint, tmp_path, "root", "only here")


def test_what_is_no_etcd3_client_is_refused():
    with pytest.raises(ConfigError, match="no etcd3 client"):
        Client.from_etcd3(object())

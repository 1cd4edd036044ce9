"""Test Spark Connect, whose client has neither a JVM nor a SparkContext.

Sources, sinks, jobs, queries and role maps work there.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rink

HERE = Path(__file__).parent
WAIT_S = 400


@pytest.fixture
def found(rink_redis, tmp_path):
    """Return the output of `connect_process.py`; it and its server end."""
    import redis
    import spark_shop
    from spark_shop_on import ShopOn

    with redis.Redis.from_url(rink_redis.url) as client:
        shop = ShopOn(client, rink_redis.url, spark_shop)
        shop.send([{"order_id": n, "customer": f"c{n % 5}"} for n in range(100)])
        shop.send([], stream="totals")
    log = tmp_path / "log"
    with log.open("w") as said:
        process = subprocess.Popen(
            [sys.executable, str(HERE / "connect_process.py"), rink_redis.url, str(tmp_path)],
            cwd=HERE, stdout=subprocess.PIPE, stderr=said, text=True, start_new_session=True,
        )  # fmt: skip
    try:
        out, _ = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, log.read_text()[-3000:]
        yield json.loads(out.splitlines()[-1])
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.deep
def test_all_but_fenced_batches_work_there(found):
    assert found["session"] == "pyspark.sql.connect.session"
    assert found["ranks"] == {f"orders/{n}": rink.rank_of(f"orders/{n}", 8) for n in range(1000)}
    assert found["read"] == list(range(100))
    assert found["ran"] == 10
    assert "on classic Spark (on Connect" in found["fenced"]
    assert found["state"] == "lost"
    assert found["ended_s"] < 5
    assert found["written"] == list(range(100))

"""Run a shop whose streams are administered from the command line.

It has an app, commands and workers.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import textwrap

from cli_lines import DEADLINE_S, Lines, wait_for, without_announcements
from click.testing import CliRunner
from redis import Redis

from rink.cli.commands import commands
from rink.cli.options import Outside
from rink.streams.store.keys import Names

RINK = [sys.executable, "-m", "rink.cli"]
PARTITIONS = 4

SHOP = """
    import os, time
    from rink.streams import App, Record

    session = {"prefix": os.environ["PREFIX"]}
    app = App("shop", redis=os.environ["SHOP_REDIS"], ttl=10, session=session)

    class Order(Record):
        order_id: int
        customer: str = "x"
        amount: int = 0

    orders = app.stream(
        "orders", record=Order, partition_by="customer",
        partition_count=int(os.environ.get("COUNT", "4")),
    )
    QUICK = {"initial_delay": 0.1, "rebalance_delay": 0.3, "backoff": (0.001, 0.01), "retry_for": 0}

    @app.processor(orders, **QUICK)
    async def bill(events):
        async for order in events.records():
            if order.amount < 0:
                raise ValueError(f"amount {order.amount} is negative")

    @app.processor(orders, on_error="quarantine", max_attempts=2, **QUICK)
    def ship(events):
        for order in events.records():
            if order.amount > 1000:
                raise ValueError("too heavy")
            time.sleep(0.2 if order.amount == 1000 else 0)
"""


class Shop:
    """Hold a folder with the app, its servers, and commands run there."""

    def __init__(self, folder, redis_url, etcd_url, prefix):
        self.folder = folder
        self.redis = Redis.from_url(redis_url, decode_responses=True)
        self.env = {"SHOP_REDIS": redis_url, "RINK_ETCD": etcd_url, "PREFIX": prefix}
        (folder / "shop.py").write_text(textwrap.dedent(SHOP))

    def rink(self, *line, **env):
        """Run a command in this process."""
        sys.modules.pop("shop", None)  # it reads the environment
        world = Outside(announce_s=DEADLINE_S)  # or a busy machine adds a line to stderr
        result = CliRunner().invoke(commands, line, obj=world, env={**self.env, **env})
        if result.exc_info and not isinstance(result.exception, SystemExit | type(None)):
            raise result.exception
        return subprocess.CompletedProcess(line, result.exit_code, result.stdout, result.stderr)

    def process(self, *line, given=None, **env):
        ended = subprocess.run(
            [*RINK, *line],
            cwd=self.folder,
            env={**os.environ, **self.env, **env},
            input=given,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        return without_announcements(ended)

    def ok(self, *line):
        """Run a command that must succeed, and return its output."""
        result = self.rink(*line)
        assert (result.returncode, result.stderr) == (0, ""), result
        return result.stdout

    def json(self, command, *line):
        return json.loads(self.ok("streams", command, "shop:app", *line, "--json"))

    def refused(self, *line, **env):
        """Run a command that must fail with one line, and return the line."""
        result = self.rink(*line, **env)
        assert (result.returncode, result.stdout) == (1, ""), result
        assert result.stderr.startswith("rink: ")
        assert result.stderr.count("\n") == 1, result.stderr
        return result.stderr

    def send(self, *orders):
        """Send orders of one customer, each with a number and an amount."""
        for n, amount in orders:
            record = json.dumps({"order_id": n, "amount": amount})
            self.ok("send", "shop:app", "orders", record)

    def names(self, number):
        return Names.of("shop", "orders").partition(number)

    def at(self, processor, number):
        return self.redis.hgetall(self.names(number).at(processor))

    def lag(self, processor):
        return {one["partition"]: one for one in self.json("lag", "-p", processor)["lag"]}

    def until_done(self, processor):
        return wait_for(
            lambda: (found := self.lag(processor)) and not any(one["lag"] for one in found.values())
            and found
        )  # fmt: skip


class Running(Lines):
    """Run a worker, and read its log."""

    def __init__(self, shop, *line):
        super().__init__([*RINK, "worker", "shop:app", *line], shop.folder, "stderr", **shop.env)

    def until_said(self, pattern):
        while not (found := re.search(pattern, self.next())):
            pass
        return found


@contextlib.contextmanager
def working(shop, *line):
    """Run a worker that owns all partitions, until the `with` ends.

    It leaves in order then.
    """
    with Running(shop, *line) as worker:
        wait_for(lambda: all(shop.at("bill", n).get("open", "0") != "0" for n in range(PARTITIONS)))
        yield worker
        assert worker.end() == 0, "".join(worker.read)

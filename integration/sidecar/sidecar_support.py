"""Run sidecars as users do: processes of `rink sidecar`, with HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import time

from rink.testing.process.ports import free_ports

RINK = [sys.executable, "-m", "rink.cli"]
DEADLINE_S = 45.0
"""Deadline of any step on a very busy machine."""
FAST = ("--ttl", "9", "--hold", "3", "--rebalance-delay", "0.5", "--handover-wait", "0")
"""Settings for a fast test, in which a client that renews once a second is never late."""
LONG_HOLD = (*FAST, "--ttl", "30", "--hold", "10")
"""Settings for a turn that must go on while the test looks at it, on a machine that may stall."""


def wait_for(condition, why="it did not happen"):
    """Wait until a condition holds, and return its value."""
    end = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < end, why() if callable(why) else why
        time.sleep(0.02)
    return found


class Sidecar:
    """Run one `rink sidecar`, which may be killed and restarted.

    It keeps its address.

    Args:
        folder: the folder of its log.
        name: its name in messages and of its log.
        etcd_url: the etcd to join.
        prefix: the prefix of the keys in etcd.
        options: further options of the command, such as FAST.
        listen: the address of the API. Port 0 is any free one, for a sidecar that is started once.
            Without an address, it is a port of loopback that is free at each start.
    """

    def __init__(self, folder, name, etcd_url, prefix, options=FAST, listen=None):
        self.name = name
        self.api = listen or f"127.0.0.1:{free_ports(1)[0]}"
        self.log = folder / f"{name}.log"
        self._line = [*RINK, "sidecar", "--group", "orders", "--public", "", "--prefix", prefix]
        self._line += options
        self._env = {**os.environ, "RINK_ETCD": etcd_url}
        self.process = None

    def start(self):
        """Start it, and wait until its API listens."""
        seen = len(self.said())
        with self.log.open("ab") as log:
            line = [*self._line, "--listen", self.api]
            self.process = subprocess.Popen(line, env=self._env, stdout=log, stderr=log)

        def address():
            assert self.process.poll() is None, self.said()
            return re.search(r"the API is at (?:http://)?(\S+)", self.said()[seen:])

        self.api = wait_for(address, self.said)[1]
        return self

    def said(self):
        """Return its log so far, of all its lives."""
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""

    def call(self, method, path, body=None, timeout=DEADLINE_S):
        """Call the API, and return the status and the JSON of the answer.

        The JSON is None without one.
        """
        connection = http.client.HTTPConnection(self.api, timeout=timeout)
        with contextlib.closing(connection):
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            read = answer.read()
            return answer.status, json.loads(read) if read else None

    def drain(self):
        """Run `rink drain`, as a preStop hook does."""
        line = [*RINK, "drain", "--api", self.api, "--wait", "0"]
        subprocess.run(line, check=True, timeout=DEADLINE_S)

    def kill(self):
        """Kill it at once, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

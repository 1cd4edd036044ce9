"""Run an etcd and the processes of a part of the bench."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
from child import TREE, Child, cpu_seconds

from rink.testing import EtcdNode, RedisNode, local_etcd, local_redis

_prefixes = itertools.count(1)
_probes = itertools.count(1)


@attrs.define
class Arena:
    """Give a part its etcd, its processes and its progress display.

    `progress(text, done, of)` shows how far it is. `tree` is the work tree whose members run.
    """

    etcd: EtcdNode
    quick: bool
    progress: Callable[[str, int, int], None]
    tree: Path = TREE

    def pick(self, full: Any, quick: Any) -> Any:
        return quick if self.quick else full

    def prefix(self) -> str:
        """Return a key range that no other measurement uses."""
        return f"bench-{next(_prefixes)}/"

    def member(
        self, prefix: str, *, ttl: float = 60, timeout: float = 5, trace: bool = False
    ) -> Child:
        """Start a process for members.

        `timeout` is their sessions', for each request.
        """
        given = {
            "endpoint": self.etcd.endpoint,
            "prefix": prefix,
            "ttl": ttl,
            "timeout": timeout,
            "trace": trace,
        }
        return Child("member.py", json.dumps(given), tree=self.tree)

    def probe(self, *, options: bool = False) -> Child:
        """Start a process without Rink.

        With `options`, its channel has the settings that Rink gives its channels.
        """
        number = next(_probes)
        given = {"endpoint": self.etcd.endpoint, "options": options, "number": number}
        return Child("probe.py", json.dumps(given))

    def metrics(self) -> Metrics:
        return Metrics.read(self.etcd)

    def etcd_cpu(self) -> float:
        pid = self.etcd.pid
        return cpu_seconds(pid) if pid is not None else 0.0

    def folder(self) -> str:
        """Describe where etcd's data lies."""
        path = self.etcd.log_path
        if path is None:
            return "unknown"
        return f"{path.parent.parent.parent} ({filesystem(path)})"


@attrs.frozen
class Metrics:
    """Hold the metrics of an etcd."""

    values: dict[str, float]

    @classmethod
    def read(cls, etcd: EtcdNode) -> Metrics:
        found = re.findall(
            r"^([a-z_]+(?:\{[^}]*\})?) ([0-9.e+]+)$", etcd._get("/metrics"), re.MULTILINE
        )
        return cls({name: float(value) for name, value in found})

    def total(self, name: str, *labels: str) -> float:
        """Return the sum of a counter.

        Only labels that contain all of these texts count.
        """
        return sum(
            value
            for key, value in self.values.items()
            if key.split("{")[0] == name and all(label in key for label in labels)
        )

    def since(self, before: Metrics, name: str, *labels: str) -> float:
        return self.total(name, *labels) - before.total(name, *labels)


@contextlib.contextmanager
def etcd(quick: bool, progress: Callable[[str, int, int], None]) -> Iterator[Arena]:
    """Run an etcd while the `with` lasts.

    Its data is in memory, as a fair limit for all.
    """
    os.environ.pop("RINK_TEST_ETCD", None)  # one that others use too would measure them
    with local_etcd() as node:
        yield Arena(node, quick, progress)


@contextlib.contextmanager
def redis() -> Iterator[RedisNode]:
    """Run a Redis with an append-only file while the `with` lasts.

    The file is never rewritten meanwhile. A rewrite would start a second process at a random
    moment.
    """
    os.environ.pop("RINK_TEST_REDIS", None)
    with local_redis(extra_args=("--auto-aof-rewrite-percentage", "0")) as node:
        yield node


def about_redis(node: RedisNode) -> str:
    """Describe the Redis of a part."""
    info = str(node.call("INFO", "server"))
    version = re.search(r"redis_version:([0-9.]+)", info)
    folder = Path(str(node.call("CONFIG", "GET", "dir")[1]))
    return (
        f"Redis {version[1] if version else 'unknown'}, append-only file with fsync every second, "
        f"on {filesystem(folder)}."
    )


def filesystem(path: Path) -> str:
    """Return the kind of file system that a path lies on."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, found, *_ = line.split()
        if path.is_relative_to(point) and len(point) > len(best):
            best, kind = point, found
    return kind

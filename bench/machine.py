"""Describe the machine on which the figures were measured.

Figures of different machines cannot be compared.
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from arena import Arena

from rink.etcd.client import Client

ROOT = Path(__file__).parents[1]


def describe(arena: Arena) -> dict[str, str]:
    client = Client([arena.etcd.endpoint])
    etcd = client.version()
    client.close()
    return {
        "machine": f"{os.cpu_count()} cores, {processor()}, {memory()}, {platform.platform()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}, "
        f"grpcio {version('grpcio')}, protobuf {version('protobuf')}",
        "etcd": f"{etcd}, one node, data in {arena.folder()}",
    }


def when() -> str:
    """Return the time, and the measured commit."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC at commit {commit()}"


class Neighbours:
    """Measure how much of the machine other processes use.

    Figures that are taken beside busy processes are not worth much.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._busy = _busy_seconds() - _own_seconds()

    def share(self) -> float:
        """Return the share of all cores that others used since the beginning.

        Call it when every process of the bench has ended.
        """
        took = (time.monotonic() - self._began) * (os.cpu_count() or 1)
        return max(0.0, (_busy_seconds() - _own_seconds() - self._busy) / took)


def _busy_seconds() -> float:
    """Return the CPU seconds that the whole machine has used.

    Idle time and waiting for disks do not count.
    """
    name, *ticks = Path("/proc/stat").read_text().splitlines()[0].split()
    assert name == "cpu"
    user, nice, system, _, _, irq, softirq, steal = map(int, ticks[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    """Return the CPU seconds of this process and its ended children.

    The etcd is one of these children.
    """
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def commit() -> str:
    def git(*arguments: str) -> str:
        ran = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False
        )
        return ran.stdout.strip()

    name = git("rev-parse", "--short", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "rink", "bench")
    return (name or "unknown") + (", with changes that are not committed" if changed else "")


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown processor"


def memory() -> str:
    kilobytes = int(Path("/proc/meminfo").read_text().split()[1])
    return f"{kilobytes / 2**20:.0f} GB"

"""On what the figures were measured: a figure without its machine says nothing."""

from __future__ import annotations

import os
import platform
import subprocess
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
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "machine": f"{os.cpu_count()} cores, {processor()}, {memory()}, {platform.platform()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}, "
        f"grpcio {version('grpcio')}, protobuf {version('protobuf')}",
        "etcd": f"{etcd}, one node, data in {arena.folder()}",
        "load before": " ".join(f"{one:.2f}" for one in os.getloadavg()),
    }


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

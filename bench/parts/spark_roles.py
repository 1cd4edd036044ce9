"""Measure the mapping of roles to ranks on Spark.

`rink.spark.roles.assign` stands beside Spark's own hash and a plain Python UDF. Spark runs in a
process of its own (this file), so that its JVM ends with this part. Each way is run warm, over
names that Spark makes while it runs. Making the names alone is measured too.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

TITLE = "rink.spark.roles: names to 64 ranks, on all cores"
RANKS = 64
LIMIT_IS = (
    "Spark's `pmod(xxhash64(role), 64)` over the same names in the same run: another hash, and not "
    "sticky"
)
MILLION = 1_000_000
ROUNDS = [5, 3]
SETTINGS = {
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.driver.extraJavaOptions": (
        "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false "
        "-XX:+UseParallelGC"
    ),
}
"""The settings that `docs/role-maps.md` advises for speed. Every way runs with them."""


def run(arena: Any) -> Any:
    from figures import Outcome

    given = {
        "sizes": arena.pick([10 * MILLION, 100 * MILLION], [MILLION, 5 * MILLION]),
        "plain": arena.pick(2 * MILLION, MILLION // 5),
        "rounds": arena.pick(ROUNDS, [1, 1]),
    }
    arena.progress("Spark", 0, 1)
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(given)], stdout=subprocess.PIPE, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    notes = [
        (
            "Names are `orders/` and a number, made by Spark as it runs; making them alone is the "
            "figure `names`."
        ),
        (
            f"{given['rounds'][0]} rounds, and {given['rounds'][1]} of the larger size, all ways "
            "in turn in each."
        ),
        (
            "Of each way the middle round counts, by its part of the limit in the same round. For "
            "`assign` the limit is measured before and after it."
        ),
        (
            "The machine's speed changes within seconds, with the load of others. So the cost is "
            "given in core seconds, too."
        ),
        f"{found['spark']}, {os.cpu_count()} cores.",
        "Settings: " + "; ".join(f"`{key}={value}`" for key, value in SETTINGS.items()) + ".",
        "Most of the time goes to Python and back, not to the ranks: see the cost of zeros.",
        f"Memory is the peak of each of {found['workers']} Python workers and of the JVM (VmHWM).",
    ]
    return Outcome(part="spark_roles", title=TITLE, figures=_figures(given, found), notes=notes)


def _figures(given: dict[str, Any], found: dict[str, Any]) -> list[Any]:
    from figures import Figure, at_least, at_most

    small, large = given["sizes"]
    rates = {
        key: [int(key.split(".")[1]) / seconds for seconds in times]
        for key, times in found["seconds"].items()
    }
    plain = statistics.median(rates[f"plain.{given['plain']}"])
    figures = []
    for size in given["sizes"]:
        says = f"{size // MILLION} million"
        rate, limits = _middle(rates, size)
        figures += [
            Figure(
                key=f"spark_roles.assign.{size}", what=f"assign (by Numba), {says} rows",
                value=rate["assign"], unit="rows/s", limit=limits["assign"], limit_is=LIMIT_IS,
                target=at_least(0.35 * limits["assign"], "≥ 0.35 x limit"),
                more={"seconds": found["seconds"][f"assign.{size}"]},
            ),
            Figure(
                key=f"spark_roles.numpy.{size}", what=f"the same by NumPy, {says}",
                value=rate["numpy"], unit="rows/s", limit=limits["numpy"], limit_is=LIMIT_IS,
            ),
            Figure(
                key=f"spark_roles.member.{size}",
                what=f"assign with a version (member too), {says}",
                value=rate["member"], unit="rows/s", limit=limits["member"], limit_is=LIMIT_IS,
            ),
            Figure(
                key=f"spark_roles.plan.{size}", what=f"plan: one member leaves, {says}",
                value=rate["plan"], unit="rows/s", limit=limits["plan"], limit_is=LIMIT_IS,
            ),
            Figure(
                key=f"spark_roles.names.{size}", what=f"names alone, {says}",
                value=rate["names"], unit="rows/s",
            ),
            Figure(
                key=f"spark_roles.zeros.{size}",
                what=f"an Arrow function of Python's that gives zeros, {says}",
                value=rate["zeros"], unit="rows/s", limit=limits["zeros"], limit_is=LIMIT_IS,
            ),
            Figure(
                key=f"spark_roles.by_plain.{size}", what=f"assign by a plain UDF, {says}",
                value=rate["assign"] / plain, unit="x", target=at_least(5, "≥ 5 x"),
                note=f"the UDF: {plain:,.0f} rows/s of {given['plain']:,}",
            ),
        ]  # fmt: skip
    cost = {size: _core_ns(found, "assign", size) for size in given["sizes"]}
    for size, ns in cost.items():
        least = _core_ns(found, "native", size)
        figures.append(
            Figure(
                key=f"spark_roles.core_seconds.{size}",
                what=f"core seconds of that hash, by those of assign, {size // MILLION} million",
                value=least / ns,
                unit="x",
                target=at_least(0.35, "≥ 0.35 x"),
                note=f"{least:,.0f} and {ns:,.0f} ns a row",
            )
        )
    growth = cost[large] / cost[small]
    figures.append(
        Figure(
            key="spark_roles.linear",
            what="core seconds for each row, the larger by the smaller run",
            value=growth,
            unit="x",
            target=at_most(1.2, "≤ 1.2 x: linear"),
            note=f"{cost[small]:,.0f} and {cost[large]:,.0f} ns, of the JVM and its Python workers",
        )
    )
    for name, what in (("worker", "a Python worker"), ("jvm", "the JVM")):
        few, many = (found["peak_mb"][str(size)][name] for size in given["sizes"])
        figures.append(
            Figure(
                key=f"spark_roles.memory.{name}",
                what=f"memory of {what}, at most",
                value=many,
                unit="MB",
                target=at_most(1.2 * few, "≤ 1.2 x the smaller runs'"),
                note=f"{few:,.0f} MB after the smaller runs",
            )
        )
    return figures


def _core_ns(found: dict[str, Any], way: str, size: int) -> float:
    """Return the nanoseconds of all cores per row, by the middle round."""
    return statistics.median(found["core_seconds"][f"{way}.{size}"]) / size * 1e9


def _middle(rates: dict[str, list[float]], size: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return each way's middle round, and the limit in that round.

    The rounds are ordered by their part of the limit of the same round.
    """
    rate, limits = {}, {}
    before, after = rates[f"native.{size}"], rates[f"native_after.{size}"]
    around = [statistics.harmonic_mean(pair) for pair in zip(before, after, strict=True)]
    for key, found in rates.items():
        way, _, rows = key.partition(".")
        if int(rows) == size:
            limit = around if way == "assign" else after
            pairs = sorted(zip(found, limit, strict=True), key=lambda pair: pair[0] / pair[1])
            rate[way], limits[way] = pairs[len(pairs) // 2]
    return rate, limits


# ── in the process of its own ────────────────────────────────────────────────────────────────────


def measure(sizes: list[int], plain: int, rounds: list[int]) -> dict[str, Any]:
    from spark_jvm import session  # beside this file, which runs as a script

    seconds: dict[str, list[float]] = {}
    core_seconds: dict[str, list[float]] = {}
    peak_mb = {}
    with (
        session({"spark.sql.shuffle.partitions": "4", **SETTINGS}) as (spark, jvm),
        Peaks(jvm.pid) as peaks,
    ):
        ways = _ways(spark)
        for way in ways.values():
            way(plain)  # warm: compiled, and the workers have done their imports
        for size, times in zip(sizes, rounds, strict=True):
            for _ in range(times):
                for name, way in ways.items():
                    rows = plain if name == "plain" else size
                    if name == "plain" and size != sizes[0]:
                        continue
                    key = f"{name}.{rows}"
                    cores, began = _core_seconds(jvm.pid), time.perf_counter()
                    way(rows)
                    seconds.setdefault(key, []).append(time.perf_counter() - began)
                    core_seconds.setdefault(key, []).append(_core_seconds(jvm.pid) - cores)
            peak_mb[size] = {"jvm": peaks.jvm, "worker": peaks.worker}
        return {
            "seconds": seconds, "core_seconds": core_seconds, "peak_mb": peak_mb,
            "spark": f"Spark {spark.version}", "workers": len(peaks.workers),
        }  # fmt: skip


def _ways(spark: Any) -> dict[str, Any]:
    from pyspark.sql import functions as f

    from rink.core.hashing import fnv1a64, jump_hash
    from rink.core.values import Version
    from rink.spark.roles import assign, loops_numpy, plan, rank_arrays

    assert rank_arrays.loops() is not loops_numpy, "Numba is not installed"

    version = Version(number=1, ranks=tuple(f"w{n}" for n in range(RANKS)), scheme="jump")

    def names(rows: int) -> Any:
        return spark.range(rows).select(f.concat(f.lit("orders/"), f.col("id")).alias("role"))

    def scalar(role: str) -> int:
        return jump_hash(fnv1a64(role), RANKS)

    def hashed(rows: int) -> Any:
        return names(rows).agg(f.sum(native)).collect()

    def zeros(roles: pa.Array) -> pa.Array:
        return pa.array(np.zeros(len(roles), np.int32))

    def numpy(roles: pa.Array) -> pa.Array:
        found = np.empty(len(roles), np.int32)
        for part, block in rank_arrays.Spans.blocks(rank_arrays.text(roles)):
            keys = loops_numpy.fnv1a64(block.data, block.starts, block.lengths)
            found[part] = loops_numpy.jump(keys, RANKS)
        return pa.array(found)

    by_numpy = f.arrow_udf(numpy, "int")
    data = f.col("role").cast("binary")
    udf, nothing = f.udf(scalar, "int", useArrow=False), f.arrow_udf(zeros, "int")
    native = f.pmod(f.xxhash64("role"), f.lit(RANKS))
    length = f.length("role")
    return {
        "names": lambda rows: names(rows).agg(f.sum(length)).collect(),
        "zeros": lambda rows: (
            names(rows).withColumn("rank", nothing(data)).agg(f.sum("rank")).collect()
        ),
        "native": hashed,
        "assign": lambda rows: assign(names(rows), "role", RANKS).agg(f.sum("rank")).collect(),
        "native_after": hashed,
        "numpy": lambda rows: (
            names(rows).withColumn("rank", by_numpy(data)).agg(f.sum("rank")).collect()
        ),
        "member": lambda rows: (
            assign(names(rows), "role", version)
            .agg(f.sum("rank"), f.sum(f.length("member")))
            .collect()
        ),
        "plan": lambda rows: plan(names(rows), "role", version, leave=["w3"]),
        "plain": lambda rows: (
            names(rows).select(udf("role").alias("rank")).agg(f.sum("rank")).collect()
        ),
    }


class Peaks(threading.Thread):
    """Track the peak memory of the JVM and of its Python workers, in MB."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.jvm, self.worker = pid, 0.0, 0.0
        self.workers: set[int] = set()
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.25):
            self.jvm = max(self.jvm, _peak_mb(self.pid))
            for pid in _below(self.pid):
                peak = _peak_mb(pid)
                if peak:
                    self.workers.add(pid)
                    self.worker = max(self.worker, peak)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()


def _peak_mb(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0  # it has ended
    found = [line.split()[1] for line in text.splitlines() if line.startswith("VmHWM:")]
    return int(found[0]) / 1024 if found else 0.0


def _core_seconds(pid: int) -> float:
    """Return the CPU seconds of a process and all its descendants."""
    ticks = 0
    for one in [pid, *_below(pid)]:
        with contextlib.suppress(OSError):  # it has ended
            said = _stat(Path(f"/proc/{one}/stat"))
            ticks += int(said[11]) + int(said[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _stat(path: Path) -> list[str]:
    """Return the fields of a process's stat, from its state on.

    Its name before them may hold spaces.
    """
    return path.read_text().rpartition(")")[2].split()


def _below(pid: int) -> list[int]:
    """Return all descendants of a process."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(_stat(stat)[1])
        except OSError:
            continue
    found, new = [], [pid]
    while new:
        new = [child for child, parent in parents.items() if parent in new]
        found += new
    return found


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))

"""Compare `rink.spark.roles` and `rink plan` with a plain Python pass."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import rink
from rink.cli.commands import commands
from rink.cli.options import Outside
from rink.core import schemes
from rink.core.hashing import fnv1a64, jump_hash
from rink.core.schemes import rank_of
from rink.core.values import Version
from rink.core.view import owner_of
from rink.errors import ConfigError
from rink.spark.roles import after, assign, balance, moves, plan

DEADLINE_S = 240
MANY = 10_000_000
MEMBERS = tuple(f"w{number}" for number in range(9))
PINS = {"": "w7", "job-3": "w1", "job-4": "gone", "日本/0": "w8"}
VERSION = Version(number=4, ranks=MEMBERS, scheme="jump", pins=PINS)
THEN = after(VERSION, leave=("w3", "w7"), join=("new",))


def invent(count):
    chance = random.Random(6)
    names = [
        "",
        "x" * 200,
        "日" * 66 + "ab",
        "job-3",
        "job-4",
        "日本/0",
        *("job-3",) * 5,
        None,
        None,
    ]
    while len(names) < count:
        letters = "äß日本🛷" if len(names) % 4 == 0 else "abc/-_12"
        names.append("".join(chance.choices(letters, k=chance.randrange(60))))
    return names


NAMES = invent(20_000)


@pytest.fixture(scope="module")
def df(spark):
    return spark.createDataFrame(pa.table({"Ro.le": NAMES, "at": range(len(NAMES))})).repartition(3)


def owner(version, name):
    return owner_of(version, name, lambda role, scheme, size: rank_of(role, size, scheme))


def expected_flows(before, then):
    pairs = Counter((owner(before, one), owner(then, one)) for one in NAMES if one is not None)
    return pairs, {(a, b): n for (a, b), n in pairs.items() if a != b}


# ── columns ──────────────────────────────────────────────────────────────────────────────────────


def test_assign_adds_rank_and_owner(df):
    rows = assign(df, "Ro.le", VERSION).collect()
    assert sorted(row["at"] for row in rows) == list(range(len(NAMES)))
    for row in rows:
        name = row["Ro.le"]
        if name is None:
            assert (row["rank"], row["member"]) == (None, None)
        else:
            assert (row["rank"], row["member"]) == (rank_of(name, 9), owner(VERSION, name))


def test_assign_by_a_number_of_ranks_and_by_a_balanced_scheme(df):
    columns = assign(df, "ro.LE", 5, scheme="balanced:3", rank="r").collect()
    assert columns[0].__fields__ == ["Ro.le", "at", "r"]
    for row in columns:
        name = row["Ro.le"]
        assert row["r"] == (None if name is None else rank_of(name, 5, "balanced:3"))
    assert {row["r"] for row in assign(df.limit(50), "Ro.le", 0, rank="r").collect()} == {None}


def test_custom_scheme_goes_to_executors_that_have_not_registered_it(df, monkeypatch):
    monkeypatch.setattr(schemes, "_custom", {})
    scheme = schemes.register(lambda role, size: len(role) % size, "length", 1)
    rows = assign(df, "Ro.le", 5, scheme=scheme).collect()
    found = {row["Ro.le"]: row["rank"] for row in rows}
    assert found == {name: None if name is None else len(name) % 5 for name in NAMES}


@pytest.mark.filterwarnings("default")
def test_collation_does_not_make_two_roles_one(spark):
    df = spark.createDataFrame(pa.table({"role": ["JOB-3", "job-3"]}))
    folded = df.selectExpr("role COLLATE UTF8_LCASE AS role")
    found = {row["role"]: row["member"] for row in assign(folded, "role", VERSION).collect()}
    assert found == {"job-3": "w1", "JOB-3": owner(VERSION, "JOB-3")}
    assert found["JOB-3"] != "w1"
    loads = {one.member: one.roles for one in balance(folded, "role", VERSION)}
    assert loads["w1"] == 1


def test_moves_are_the_rows_whose_owner_changes(df):
    found = moves(df, "Ro.le", VERSION, THEN)
    assert found.columns == [
        "Ro.le",
        "at",
        "rank_before",
        "rank_after",
        "member_before",
        "member_after",
    ]
    expected = {
        at: (rank_of(name, 9), rank_of(name, 8), owner(VERSION, name), owner(THEN, name))
        for at, name in enumerate(NAMES)
        if name is not None and owner(VERSION, name) != owner(THEN, name)
    }
    assert {row["at"]: tuple(row)[2:] for row in found.collect()} == expected


def test_moves_between_two_sizes(df):
    found = moves(df, "Ro.le", 9, 10).collect()
    assert {row["rank_after"] for row in found} == {9}
    expected = {name for name in NAMES if name is not None and rank_of(name, 10) == 9}
    assert {row["Ro.le"] for row in found} == expected


def test_each_role_is_hashed_once(df):
    for columns in (moves(df, "Ro.le", VERSION, THEN), assign(df, "Ro.le", VERSION)):
        text = columns._jdf.queryExecution().executedPlan().toString()
        assert text.count("ArrowEvalPython") == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"role": "name"}, "there is no column 'name'; there are: Ro.le, at"),
        ({"role": "at"}, "column 'at' holds bigint, but roles are strings"),
        ({"by": -1}, "the size is 0 to"),
        ({"by": 3, "scheme": "other"}, "scheme 'other' is not known here"),
        ({"rank": "AT"}, "there is a column 'AT' already"),
        ({"member": "rank"}, "there is a column 'rank' already"),
    ],
)
def test_what_is_wrong_is_said_before_a_job_runs(spark, df, given, says):
    before = spark.sparkContext.statusTracker().getJobIdsForGroup()
    with pytest.raises(ConfigError, match=says):
        assign(df, **{"role": "Ro.le", "by": VERSION, **given})
    if "member" not in given and "rank" not in given:
        by = given.get("by", VERSION)
        with pytest.raises(ConfigError, match=says):
            moves(df, given.get("role", "Ro.le"), by, by, scheme=given.get("scheme", "jump"))
    assert spark.sparkContext.statusTracker().getJobIdsForGroup() == before


def test_version_and_a_size_are_not_compared(df):
    with pytest.raises(ConfigError, match="cannot be compared"):
        moves(df, "Ro.le", 3, VERSION)


# ── counts ───────────────────────────────────────────────────────────────────────────────────────


def test_balance_counts_what_each_member_owns(df):
    expected = Counter(owner(VERSION, name) for name in NAMES if name is not None)
    loads = balance(df, "Ro.le", VERSION)
    assert [(one.member, one.rank) for one in loads] == [(m, r) for r, m in enumerate(MEMBERS)]
    assert {one.member: one.roles for one in loads} == expected
    assert sum(one.share for one in loads) == pytest.approx(1)
    assert loads[0].ratio == pytest.approx(loads[0].roles * 9 / (len(NAMES) - 2))


def test_plan_counts_moves_flows_and_both_balances(df):
    found = plan(df, "Ro.le", VERSION, leave=("w3", "w7"), join=("new",))
    pairs, flows = expected_flows(VERSION, THEN)
    assert found.after == THEN
    assert (found.roles, found.unnamed, found.moved) == (len(NAMES) - 2, 2, sum(flows.values()))
    assert {(one.source, one.target): one.roles for one in found.flows} == flows
    gets = Counter()
    for (_, target), count in pairs.items():
        gets[target] += count
    assert {one.member: one.roles for one in found.balance_after} == gets
    assert found.balance_before == balance(df, "Ro.le", VERSION)


def test_plan_of_no_rows_and_one_of_a_group_of_nobody(df):
    found = plan(df.limit(0), "Ro.le", VERSION, leave=("w3",))
    assert (found.roles, found.moved, found.flows) == (0, 0, ())
    nobody = Version(number=1, ranks=(), scheme="jump")
    found = plan(df, "Ro.le", nobody, join=("a",))
    assert [(one.source, one.target, one.roles) for one in found.flows] == [
        (None, "a", len(NAMES) - 2)
    ]


@pytest.mark.deep
def test_ten_million_names_have_the_ranks_of_the_scalar_function(spark):
    from pyspark.sql import functions as f

    names = spark.range(MANY).select(f.concat(f.lit("orders/"), f.hex("id")).alias("role"))
    scalar = f.udf(lambda role: jump_hash(fnv1a64(role), 64), "int")
    ranked = assign(names, "role", 64).withColumn("scalar", scalar("role"))
    with_both = ranked.mapInArrow(by_numpy_too, "rank int, scalar int, by_numpy int")
    is_right = [f.col(name).eqNullSafe(f.col("scalar")) for name in ("rank", "by_numpy")]
    found = with_both.agg(f.count("*"), *map(f.count_if, is_right)).first()
    assert tuple(found) == (MANY, MANY, MANY)


def by_numpy_too(batches):
    """Add the ranks of NumPy's loops to those that `assign` found by Numba."""
    from rink.spark.roles import loops_numpy, rank_arrays

    for batch in batches:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(rank_arrays, "loops", lambda: loops_numpy)
            by_numpy = rank_arrays.ranks(batch["role"], 64, schemes.find("jump"))
        columns = [batch["rank"], batch["scalar"], by_numpy]
        yield pa.RecordBatch.from_arrays(columns, ["rank", "scalar", "by_numpy"])


# ── the command ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write the roles in every format, except those that CSV takes for null."""
    folder = tmp_path_factory.mktemp("roles")
    names = [f"job-{number}" for number in range(3000)]
    pq.write_table(pa.table({"role": names, "n": range(3000)}), folder / "roles.parquet")
    (folder / "parts").mkdir()
    for number in range(3):
        part = names[number * 1000 :][:1000]
        pq.write_table(pa.table({"role": part}), folder / "parts" / f"{number}.parquet")
    (folder / "roles.csv").write_text("n,role\n" + "".join(f"1,{name}\n" for name in names))
    lines = "".join(json.dumps({"role": name, "n": 1}) + "\n" for name in names)
    (folder / "roles.jsonl").write_text(lines)
    return folder


def told(*line):
    result = CliRunner().invoke(commands, ["plan", *map(str, line), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def expected_moves(leave, join, members):
    was = Version(number=0, ranks=members, scheme="jump")
    then = after(was, leave, join)
    names = [f"job-{number}" for number in range(3000)]
    return Counter(
        (owner(was, n), owner(then, n)) for n in names if owner(was, n) != owner(then, n)
    )


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("name", ["roles.parquet", "parts", "roles.csv", "roles.jsonl"])
def test_every_format_gives_the_same_plan(files, name):
    found = told("--members", "a,b,c", "--leave", "b", "--join", "d,e", "--spark", files / name)
    flows = {(one["from"], one["to"]): one["roles"] for one in found["flows"]}
    assert flows == expected_moves(("b",), ("d", "e"), ("a", "b", "c"))
    assert (found["roles"], found["moved"]) == (3000, sum(flows.values()))


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("line", "says"),
    [
        (("--role-column", "name"), "there is no column 'name'; there are: role, n"),
        (("--role-column", "n"), "column 'n' holds bigint, but roles are strings"),
    ],
)
def test_column_that_cannot_be_used(files, line, says):
    line = ["plan", "--members", "a", "--spark", str(files / "roles.parquet"), *line]
    result = CliRunner().invoke(commands, line, obj=Outside(announce_s=DEADLINE_S))
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.output
    assert says in result.stderr


@pytest.mark.usefixtures("spark")
def test_file_that_is_no_parquet(tmp_path):
    (tmp_path / "bad.parquet").write_text("no parquet at all")
    line = ["plan", "--members", "a", "--spark", str(tmp_path / "bad.parquet")]
    result = CliRunner().invoke(commands, line, obj=Outside(announce_s=DEADLINE_S))
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.output
    assert "bad.parquet cannot be read" in result.stderr


@pytest.mark.timeout(600)  # it starts a second JVM: half a minute on a busy machine
@pytest.mark.deep
def test_command_plans_for_a_real_group_in_a_process_of_its_own(files, etcd_url, prefix, tmp_path):
    picture = tmp_path / "out.svg"
    with (
        rink.Session(etcd_url, prefix=prefix) as session,
        rink.Rink(session, "orders", name="w1", rebalance_delay=0) as one,
        rink.Rink(session, "orders", name="w2", rebalance_delay=0) as two,
    ):
        end = time.monotonic() + DEADLINE_S
        while two.rank is None or len(one.version.ranks) < 2:  # it is settled before, too
            assert time.monotonic() < end
            time.sleep(0.05)
        members = one.version.ranks
        result = subprocess.run(
            [
                *(sys.executable, "-m", "rink.cli", "plan", "orders", "--prefix", prefix),
                *("--spark", files / "roles.parquet", "--leave", "w2", "--join", "w9,w10"),
                *("--master", "local[2]", "--json", "--plot", picture),
            ],
            env={**os.environ, "RINK_ETCD": etcd_url},
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
        )
        late = "rink: no answer yet"  # on a busy machine
        said = [one for one in result.stderr.splitlines() if not one.startswith(late)]
        assert (result.returncode, said) == (0, [])
        assert sorted(members) == ["w1", "w2"]
    found = json.loads(result.stdout)
    flows = {(one["from"], one["to"]): one["roles"] for one in found["flows"]}
    assert found["ranks_before"] == list(members)
    assert flows == expected_moves(("w2",), ("w9", "w10"), members)
    assert "<svg" in picture.read_text()

"""Test `rink plan`: its input, its refusals before Spark, its output."""

from __future__ import annotations

import importlib.util
import json
import sys

import attrs
import pytest
from click.testing import CliRunner

from rink.cli import plan_files, plan_picture, planning
from rink.cli.commands import commands
from rink.cli.options import Outside
from rink.core.member_record import MemberRecord, Phase
from rink.core.values import Member, Proclaimed, Version
from rink.core.view import View
from rink.errors import ConfigError, RinkError
from rink.spark.roles import after
from rink.spark.roles.plans import summed


@pytest.fixture
def started(monkeypatch):
    """Record whether Spark would have been started."""
    calls = []

    def session(master=None):
        calls.append(master)
        raise RinkError("started")

    monkeypatch.setattr(plan_files, "session", session)
    return calls


@pytest.fixture
def roles(tmp_path):
    path = tmp_path / "roles.parquet"
    path.mkdir()
    return str(path)


@attrs.frozen
class Closed:
    def close(self):
        pass


@pytest.fixture
def run():
    def run(*line):
        return CliRunner().invoke(
            commands, ["plan", *line], obj=Outside(connect=lambda target: Closed())
        )

    return run


@pytest.fixture
def refused(run, started):
    def refused(*line, status=1):
        result = run(*line)
        assert (result.exit_code, started) == (status, []), result.output
        return result.stderr

    return refused


@pytest.fixture
def computed(monkeypatch):
    """Compute plans from made-up counts; return the arguments."""
    calls = []

    def compute(standing, title, path, column, leave, join, master, plot):
        calls.append((standing, title, path, column, leave, join, master, plot))
        then = after(standing, leave, join)
        ends = (standing.ranks[-1], then.ranks[0])
        return summed(standing, then, {ends: 750, (then.ranks[0],) * 2: 250}, 3)

    monkeypatch.setattr(planning, "_compute", compute)
    return calls


# ── what is asked for ────────────────────────────────────────────────────────────────────────────


def test_without_a_file_it_says_what_to_do(refused):
    assert "name them by --spark FILE" in refused("orders", status=2)


@pytest.mark.parametrize("line", [(), ("orders", "--members", "a,b")])
def test_group_or_members_and_not_both(refused, roles, line):
    said = refused(*line, "--spark", roles, status=2)
    assert "name either a GROUP, or its members" in said


def test_scheme_goes_with_members(refused, roles):
    said = refused("orders", "--spark", roles, "--scheme", "jump", status=2)
    assert "--scheme goes with --members" in said


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            ("--leave", "w3"),
            "rink: member 'w3' is not in the group, so it cannot leave. Members: w1, w2",
        ),
        (("--join", "w2"), "rink: member 'w2' is in the group already"),
        (("--leave", "w1,w2"), "rink: no member would be left"),
        (("--scheme", "round"), "rink: scheme 'round' is not known here"),
        (("--plot", "out.gif"), "rink: a picture ends in .svg, .png, .pdf, not as 'out.gif'"),
        (("--plot", "no/such/out.svg"), "rink: there is no folder"),
    ],
)
def test_what_cannot_be_planned_is_said_before_spark_is_started(refused, roles, line, says):
    said = refused("--members", "w1,w2", "--spark", roles, *line)
    assert said.startswith(says)
    assert said.count("\n") == 1


def test_file_that_is_not_there(refused):
    said = refused("--members", "w1", "--spark", "none.parquet")
    assert said == "rink: there is no file 'none.parquet'\n"


def test_file_of_another_kind(refused, tmp_path):
    path = tmp_path / "roles.xlsx"
    path.touch()
    assert "ends in none of .parquet, .csv" in refused("--members", "w1", "--spark", str(path))


def test_where_all_is_well_spark_is_started(run, started, roles):
    assert run("--members", "w1", "--spark", roles).stderr == "rink: started\n"
    assert run("--members", "w1", "--spark", roles, "--master", "local[3]").exit_code == 1
    assert started == [None, "local[3]"]


def test_format_is_told_by_the_name(tmp_path):
    for name, kind in (("a.PARQUET", "parquet"), ("b.csv.gz", "csv"), ("c.ndjson", "json")):
        (tmp_path / name).touch()
        assert plan_files.format_of(str(tmp_path / name)) == kind
    assert plan_files.format_of(str(tmp_path)) == "parquet"
    assert plan_files.format_of("s3a://bucket/roles") == "parquet"
    assert plan_files.format_of("hdfs://host/roles.csv") == "csv"
    with pytest.raises(ConfigError):
        plan_files.format_of("hdfs://host/roles.txt")


# ── what is missing on this machine ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize("missing", ["pyspark", "numpy", "pyarrow"])
def test_missing_package_is_told_with_its_extra(refused, roles, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    error = ModuleNotFoundError(f"No module named {missing!r}", name=missing)
    monkeypatch.setattr(planning, "_compute", lambda *_: (_ for _ in ()).throw(error))
    said = refused("--members", "w1", "--spark", roles)
    assert said == f"rink: `rink plan` needs {missing}: pip install 'etcd-rink[spark]'\n"


def test_pyspark_that_is_not_installed(refused, roles, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    said = refused("--members", "w1", "--spark", roles)
    assert said == "rink: `rink plan` needs pyspark: pip install 'etcd-rink[spark]'\n"


def test_matplotlib_that_is_not_installed(refused, roles, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    said = refused("--members", "w1", "--spark", roles, "--plot", "out.svg")
    assert said == "rink: --plot needs matplotlib: pip install 'etcd-rink[plot]'\n"


def test_no_java(run, roles, monkeypatch, tmp_path):
    from pyspark.sql import SparkSession

    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    for name in ("JAVA_HOME", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    said = run("--members", "w1", "--spark", roles).stderr
    assert said.startswith("rink: Spark needs Java 17 or later, and there is no java in the PATH")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "has no bin/java" in run("--members", "w1", "--spark", roles).stderr


# ── what is read of the group ────────────────────────────────────────────────────────────────────


def entry(name, revision, phase=Phase.ACTIVE, lease=7, **fields):
    record = MemberRecord(incarnation="i", ttl=60, phase=phase, **fields)
    return Member(name, record, revision, revision, lease)


@pytest.fixture
def group(monkeypatch):
    def group(*entries):
        monkeypatch.setattr(planning, "read_group", lambda etcd, keys: View.listed(9, entries))

    return group


def proclaimed(*ranks, scheme="jump"):
    version = Version(number=4, ranks=ranks, scheme=scheme, pins={"r": "b"})
    return Proclaimed(4, version, 8, 100)


def test_who_waits_and_who_will_go_anyhow_is_read_from_the_records(run, group, computed, roles):
    group(
        proclaimed("a", "b", "gone", "c"),
        entry("late", 30),
        entry("a", 11),
        entry("b", 12),
        entry("c", 13, Phase.LEAVING),
        entry("early", 20),
        entry("balanced", 15, schemes=("balanced:8",)),
        entry("lost", 16, lease=0),
    )
    result = run("orders", "--spark", roles, "--leave", "b", "--join", "x,y", "--join", "z")
    assert result.exit_code == 0, result.output
    ((standing, title, path, column, leave, join, master, plot),) = computed
    assert (standing.version.number, title) == (4, "orders, version 4")
    assert standing.waiting == ("balanced", "early", "late")
    assert standing.leaving == ("gone", "c")
    assert (path, column, master, plot) == (roles, "role", None, None)
    assert (leave, join) == (("b",), ("x", "y", "z"))


def test_group_that_is_not_there(refused, group, roles):
    group()
    assert "there is no group 'orders'" in refused("orders", "--spark", roles)


def test_group_without_a_version_and_one_that_cannot_be_read(refused, group, roles):
    group(entry("a", 11))
    assert "of group 'orders' is not there yet" in refused("orders", "--spark", roles)
    group(entry("a", 11), Proclaimed(4, None, 8, 100, "format 9"))
    assert "of group 'orders' cannot be read" in refused("orders", "--spark", roles)


# ── what is shown ────────────────────────────────────────────────────────────────────────────────


def test_people_are_shown_tables(run, computed, roles):
    result = run("--members", "w1,w2,w3", "--spark", roles, "--leave", "w3", "--join", "w9")
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert result.stdout.startswith("750 of 1,000 roles would move (75.00%)\n3 → 3 ranks · jump · ")
    assert "replaced w3 by w9: leaving" in result.stdout
    assert "rows without a role (null): 3" in result.stdout
    assert ["w3", "w1", "750", "100.0%"] in lines
    assert ["w1", "0", "250", "1,000", "0.750", "3.000"] in lines
    assert ["w9", "-", "→", "2", "-", "0", "-", "0.000"] in lines
    assert ["w3", "2", "→", "-", "750", "-", "2.250", "-"] in lines


def test_programs_get_json(run, computed, roles):
    result = run("--members", "w1,w2,w3", "--spark", roles, "--leave", "w3", "--json")
    told = json.loads(result.stdout)
    assert (told["group"], told["file"], told["plot"]) == (None, roles, None)
    assert (told["roles"], told["moved"], told["unnamed"]) == (1000, 750, 3)
    assert told["flows"] == [{"from": "w3", "to": "w1", "roles": 750}]
    assert told["because"] == ["left w3"]


def test_many_flows_are_cut_and_names_cannot_move_the_cursor():
    ranks = (*(f"w{number}" for number in range(39)), "\x1b[2J")
    version = Version(number=1, ranks=ranks, scheme="jump")
    then = after(version, join=("new",))
    plan = summed(version, then, {(name, "new"): 10 for name in ranks})
    console = planning.render.console()
    with console.capture() as captured:
        console.print(planning.show_plan(plan))
    text = captured.get()
    assert "… and 20 more pairs" in text
    assert "\x1b[2J" not in text
    assert "\\x1b[2J" in text


# ── the picture ──────────────────────────────────────────────────────────────────────────────────


def drawn(path, count, leave=(), join=(), pairs=None):
    version = Version(number=1, ranks=tuple(f"w{n}" for n in range(count)), scheme="jump")
    then = after(version, leave, join)
    if pairs is None:
        pairs = {
            (one, other): 1000 + len(one) for one in version.ranks for other in then.ranks[-2:]
        }
    plan_picture.draw(summed(version, then, pairs), str(path), "orders $1_x$ 日本")


@pytest.mark.parametrize(
    ("count", "leave", "join"),
    [
        (3, ("w2",), ()),
        (64, ("w3",), ("$a_b$ 日本",)),
        (300, (), ("new",)),
        (1, (), ("n" * 80,)),
    ],
)
def test_picture_is_drawn_for_few_members_and_for_many(tmp_path, count, leave, join):
    path = tmp_path / "out.svg"
    drawn(path, count, leave, join)
    assert "<svg" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("pairs", [{}, {("w0", "w0"): 5}, {(None, "w0"): 5, ("w1", "w2"): 10**12}])
def test_picture_of_no_moves_and_of_nobody(tmp_path, pairs):
    path = tmp_path / "out.PNG"
    drawn(path, 3, pairs=pairs)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (950, "950"), (999.9, "1k"), (12_345, "12.3k"), (4.56e6, "4.56M"), (1e9, "1G")],
)
def test_counts_are_short(number, text):
    assert plan_picture.short(number) == text

"""Compare the replacements for older releases with this release's own way."""

import pytest
from pyspark.sql import functions as F  # noqa: N812

import rink
from rink.core.values import Version
from rink.spark.compat import repartition_by_id
from rink.spark.roles import after, assign, moves

NAMES = [None, "", "日本/0", *(f"job/{n}" for n in range(2000))]


def without(monkeypatch, kind, name):
    for one in kind.__mro__:
        if name in vars(one):
            monkeypatch.delattr(one, name)


@pytest.mark.parametrize("parts", [1, 2, 8, 61])
def test_rows_go_to_their_partition_without_repartition_by_id(spark, monkeypatch, parts):
    df = spark.range(500).withColumn("part", (F.col("id") % parts).cast("int"))
    without(monkeypatch, type(df), "repartitionById")
    cut = repartition_by_id(df, parts, "part")
    assert cut.columns == ["id", "part"]
    assert cut.rdd.getNumPartitions() == parts
    rows = cut.withColumn("at", F.spark_partition_id()).collect()
    assert sorted(row.id for row in rows) == list(range(500))
    assert all(row.at == row.part for row in rows)


def test_role_maps_are_the_same_without_arrow_udf(spark, monkeypatch):
    monkeypatch.delattr(F, "arrow_udf")
    now = Version(number=4, ranks=("a", "b", "c"), scheme="jump", pins={"job/3": "a"})
    then = after(now, leave=("b",))
    df = spark.createDataFrame([(name,) for name in NAMES], "role string").repartition(3)
    ranks = {row.role: row["rank"] for row in assign(df, "role", now).collect()}
    assert ranks == {name: None if name is None else rink.rank_of(name, 3) for name in NAMES}
    assert {row["rank"] for row in assign(df, "role", 0).collect()} == {None}
    found = moves(df, "role", now, then)
    assert found.where("rank_before = 1").count() == list(ranks.values()).count(1) - (
        ranks["job/3"] == 1
    )
    assert found.dtypes[1:3] == [("rank_before", "int"), ("rank_after", "int")]

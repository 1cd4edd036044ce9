"""Spark looks for modules named pyspark_… and has their DefaultSource at hand: so `format("rink")` needs no registration."""

from rink.spark.datasource import RinkDataSource as DefaultSource

__all__ = ["DefaultSource"]

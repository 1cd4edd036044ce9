"""Share one Spark session among all tests: it takes six seconds to start."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """Raise timeouts: Spark starts Python processes for each batch."""
    for item in items:
        if item.path.parent == HERE and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    from driver_process import on_this_machine
    from pyspark.sql import SparkSession

    builder = on_this_machine(
        tmp_path_factory.mktemp("spark"), "tests", SparkSession.builder.master("local[2]")
    )
    session = (
        builder.config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def shop(rink_redis, spark):
    """Yield the shop's empty streams; stop queries of a failed test."""
    import redis
    import spark_shop
    from spark_shop_on import ShopOn

    client = redis.Redis.from_url(rink_redis.url)
    yield ShopOn(client, rink_redis.url, spark_shop)
    for query in spark.streams.active:
        query.stop()
    client.close()

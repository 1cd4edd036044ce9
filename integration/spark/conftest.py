"""One Spark session for all tests here: it takes six seconds to start."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    """Spark starts processes of Python for each batch: on a busy machine that takes its time."""
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
    """The shop's streams in a real Redis, empty; queries of a test that failed are stopped."""
    import redis
    import spark_shop
    from spark_shop_on import ShopOn

    client = redis.Redis.from_url(rink_redis.url)
    yield ShopOn(client, rink_redis.url, spark_shop)
    for query in spark.streams.active:
        query.stop()
    client.close()

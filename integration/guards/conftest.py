import itertools
import sys
from pathlib import Path

import pytest

# The fast tests have the same contract and model.
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "guards"))
pytest.register_assert_rewrite("guards_worlds", "guards_contract", "guards_model", "guards_process")

import sqlalchemy as sa  # noqa: E402 - need the path above
from clusters import ToCluster  # noqa: E402
from guards_worlds import ParquetWorld, RedisWorld, SqliteWorld, SqlWorld  # noqa: E402
from postgres import local_postgres  # noqa: E402
from redis import Redis  # noqa: E402

from rink.redis.blocking_client import close_idle  # noqa: E402
from rink.testing import redis_cluster  # noqa: E402

_numbers = itertools.count()


@pytest.fixture(scope="session")
def postgres():
    """Yield one PostgreSQL for the whole run."""
    with local_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def three_masters():
    with redis_cluster(3, node_timeout_ms=15_000) as cluster:
        yield cluster


# Each kind has its own server, and each world is empty: Redis is flushed, PostgreSQL gets a new
# schema. So no test sees what another test wrote.
@pytest.fixture
def clean(request, tmp_path):
    """Yield a function that makes empty worlds; close them at the end."""
    made = []

    def of_redis(kind):
        if kind == "redis":
            node = request.getfixturevalue("rink_redis")
            node.flush()
            return RedisWorld(node.url, Redis.from_url(node.url))
        masters = request.getfixturevalue("three_masters")
        for node in masters.nodes:
            node.flush()
        to_cluster = ToCluster(masters.urls[0])
        prefix = "{flights}:guard:" if kind == "slot" else "rink:guard:"
        return RedisWorld(to_cluster, to_cluster(), prefix=prefix)

    def of_postgres():
        server = request.getfixturevalue("postgres")
        schema = f"s{next(_numbers)}"
        engine = sa.create_engine(server.url, poolclass=sa.pool.NullPool)
        with engine.begin() as connection:
            connection.execute(sa.text(f"CREATE SCHEMA {schema}"))
        return SqlWorld(server.url, schema=schema)

    def of_files(kind):
        folder = tmp_path / str(next(_numbers))
        folder.mkdir()
        return kind(folder)

    def make(kind):
        if kind == "postgres":
            made.append(of_postgres())
        elif kind in {"sqlite", "parquet"}:
            made.append(of_files(SqliteWorld if kind == "sqlite" else ParquetWorld))
        else:
            made.append(of_redis(kind))
        return made[-1]

    yield make
    for world in made:
        world.close()
        if isinstance(world, RedisWorld):
            close_idle(world.client)

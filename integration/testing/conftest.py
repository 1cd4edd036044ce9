import sys
from pathlib import Path

import pytest

# The contract suite is shared with the in-memory etcd's tests.
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "testing"))
pytest.register_assert_rewrite(
    "etcd_contract", "etcd_contract_streams", "etcd_world", "servers_support"
)


@pytest.fixture
def no_given_etcd(monkeypatch):
    monkeypatch.delenv("RINK_TEST_ETCD", raising=False)


@pytest.fixture
def no_given_redis(monkeypatch):
    monkeypatch.delenv("RINK_TEST_REDIS", raising=False)

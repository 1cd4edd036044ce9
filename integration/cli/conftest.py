"""Share fixtures among the tests of the commands."""

from __future__ import annotations

import sys

import pytest

pytest.register_assert_rewrite("cli_lines", "cli_shop")

from cli_shop import Shop  # noqa: E402 - rewritten before


@pytest.fixture
def shop(tmp_path, rink_redis, etcd_url, prefix, monkeypatch):
    """Return the app on an empty Redis."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    shop = Shop(tmp_path, rink_redis.url, etcd_url, prefix)
    yield shop
    shop.redis.close()
    sys.modules.pop("shop", None)

"""Warn of a Redis that evicts keys: events, offsets or fences."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from redis.asyncio import RedisCluster

from rink.errors import RinkError
from rink.plural import plural
from rink.redis.error_map import explained
from rink.streams.store.store import Store

log = logging.getLogger("rink.streams")

_KEEPS_ALL = "noeviction"


class Evictions:
    """Check for one worker whether its Redis evicts keys."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._policies: dict[str, str] = {}
        self._evicted: dict[str, int] = {}

    async def look(self) -> None:
        """Log an evicting policy once, and each eviction of keys."""
        try:
            info = await self._info()
        except RinkError as error:  # forbidden or unavailable, which other steps report
            log.debug("cannot check whether Redis evicts keys: %s", error)
            return
        for server, facts in info.items():
            policy = str(facts.get("maxmemory_policy", ""))
            self._look_at_policy(server, policy if facts.get("maxmemory") else "")
            self._look_at_count(server, int(facts.get("evicted_keys", 0)), policy)

    async def _info(self) -> dict[str, Mapping[str, Any]]:
        """Return the memory statistics of each master.

        They come from INFO, which is allowed even if CONFIG is refused.
        """
        redis = self._store.redis
        with explained(self._store.server):
            if not isinstance(redis, RedisCluster):
                return {self._store.server: await redis.info("memory", "stats")}
            info = await redis.info("memory", "stats", target_nodes=redis.PRIMARIES)
        # redis-py returns the statistics alone if the cluster has one master.
        return {self._store.server: info} if "maxmemory" in info else info

    def _look_at_policy(self, server: str, policy: str) -> None:
        if self._policies.get(server) == policy:
            return
        self._policies[server] = policy
        if policy in ("", _KEEPS_ALL):  # without maxmemory nothing is ever evicted
            return
        lost = (
            "keys that expire: then a repeated send may be appended twice, and a Spark sink may "
            "lose its staged records"
            if policy.startswith("volatile")
            else "any keys: then events, offsets or fences may be gone"
        )
        log.warning(
            "Redis at %s has maxmemory-policy %s: out of memory it evicts %s. Set maxmemory-policy "
            "noeviction: senders wait then, and nothing is lost",
            server, policy, lost,
        )  # fmt: skip

    def _look_at_count(self, server: str, evicted: int, policy: str) -> None:
        before = self._evicted.get(server)
        self._evicted[server] = evicted
        if before is None or evicted <= before:  # lower: Redis was restarted
            return
        log.error(
            "Redis at %s has evicted %d %s since the last check (maxmemory-policy %s): events, "
            "offsets or fences of this app may be among them. `rink streams lag` shows partitions "
            "that were quarantined for it. Set maxmemory-policy noeviction, and raise maxmemory",
            server, evicted - before, plural(evicted - before, "key"), policy,
        )  # fmt: skip

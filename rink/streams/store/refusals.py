"""Turn the refusals of scripts into errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from redis.asyncio import RedisCluster

from rink.errors import RinkError, StaleToken, StateError
from rink.plural import plural
from rink.redis.errors import CrossSlot
from rink.redis.reply_text import text
from rink.streams.errors import OffsetMoved, PartitionFull, RedisRolledBack
from rink.streams.store.values import PartitionBounds, PartitionPlace


def check(place: PartitionPlace, token: int, answer: Sequence[Any], expected: str = "") -> None:
    """Raise the error for a refused step of an owner.

    `expected` is the offset that the owner knows; "" for none.
    """
    match text(answer[0]):
        case "ok":
            return
        case "stale":
            fence = int(answer[1]) if len(answer) > 1 else 0
            has = f"token {fence}" if fence else "another token"
            raise StaleToken(
                f"partition {place.role!r} of processor {place.processor!r} belongs to a later "
                f"owner: token {token} was refused, since {place.at!r} has {has}",
                role=place.role,
                token=token,
                newer=fence,
            )
        case "moved":
            raise OffsetMoved(f"the offset of {place.at!r} was moved to {text(answer[1])}")
        case _:
            raise _rolled_back(place, token, answer[1:], expected)


def _rolled_back(
    place: PartitionPlace, token: int, answer: Sequence[Any], expected: str
) -> RedisRolledBack:
    fence, offset, *last = (text(part) for part in answer)
    known = f"offset {expected} under token {token}" if expected else "an offset within the stream"
    ends = f", and the stream ends at {last[0]}" if last else ""
    return RedisRolledBack(
        f"partition {place.role!r} of processor {place.processor!r} was rolled back. Redis "
        f"had {known}, but {place.at!r} now has offset {offset} under token {fence}{ends}. Redis "
        "was restored, failed over to older data, or evicted keys. Events may be lost, or be "
        "processed again",
        key=place.at,
        known=expected,
    )


def of_output(
    server: str,
    place: PartitionPlace,
    key: str,
    bounds: PartitionBounds | None,
    answer: Sequence[Any],
) -> RinkError:
    """Return the error for a commit whose output to this key was refused."""
    if text(answer[0]) == "type":
        return StateError(
            f"Redis at {server}: an output of {place.role!r} goes to {key!r}, which is "
            f"a {text(answer[2])} and not a stream. Nothing was written: remove this key",
            key=key,
        )
    limit, held = bounds.limit if bounds else 0, int(answer[2])
    return PartitionFull(
        f"{key!r} holds {held} of {limit} {plural(limit, 'event')} that some processor has not "
        f"committed, and has no room for the outputs of {place.role!r}: nothing was written",
        stream=key,
    )


def check_slots(cluster: RedisCluster, place: PartitionPlace, targets: Iterable[str]) -> None:
    """Raise CrossSlot if a commit would write to another slot."""
    slot = cluster.keyslot(place.at)
    for target in targets:
        if (other := cluster.keyslot(target)) != slot:
            raise CrossSlot(
                f"a commit of {place.at!r} (slot {slot}) cannot write to {target!r} "
                f"(slot {other}) in one step: Redis Cluster has no transactions over several "
                "slots. Use send() and a plain commit (at least once), or a Redis that is no "
                "cluster"
            )

"""Call hashers of users, and compare their fingerprints.

A hasher is a function that returns the number of a key's partition, in place of the built-in hash.
Every program that sends to the stream must have the same function. Functions cannot be compared,
but their answers for fixed sample keys can. So the fingerprint of these answers is stored in Redis,
beside the number of partitions.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable
from typing import Any

from rink.callables import check_plain
from rink.errors import ConfigError
from rink.streams.errors import RecordError

Hasher = Callable[[str], int]
"""A function from a key's text to a number; the partition is that number modulo the count."""

# A change of the samples changes every fingerprint, so that programs of two versions refuse each
# other.
_SAMPLES = (
    *(
        "A",
        "B",
        "ann",
        "BTC/ETH",
        "job 17",
        "Ünïcode",
        "日本語",
        "🛷",
        "%2F",
        "-1",
        "1.5",
        "x" * 200,
    ),
    *("True", "None", "2026-01-31", "2026-01-31 12:00:00", "0f8fad5b-d9cb-469f-a165-70867728950e"),
    *(f"{number}" for number in range(64)),
    *(f"customer-{number}" for number in range(64)),
)


def check_hasher(hasher: Hasher, stream: str, count: int) -> str:
    """Return the fingerprint of a hasher.

    A hasher may raise for samples, and still be right for all real keys.

    Raises:
        ConfigError: the hasher cannot be called with a text, does not return an int, or gives the
            same key two partitions.
    """
    if hasher is hash:
        raise ConfigError(
            f"stream {stream!r}: hasher=hash cannot be used, since Python's hash of a text differs "
            "in each process: leave it out for the built-in one, or use a function of hashlib or "
            "zlib"
        )
    check_plain("hasher", hasher, "key")
    _check_type(hasher, stream)
    answers = [_sampled(hasher, stream, key, count) for key in _SAMPLES]
    if answers != [_sampled(hasher, stream, key, count) for key in _SAMPLES]:
        raise ConfigError(
            f"stream {stream!r}: the hasher gave the same key two partitions in two calls: it must "
            "depend only on the key"
        )
    return hashlib.sha256("\n".join(answers).encode()).hexdigest()[:16]


def _check_type(hasher: Hasher, stream: str) -> None:
    """Refuse a function that takes no text, such as `zlib.crc32`."""
    for key in _SAMPLES:
        try:
            hasher(key)
            return
        except TypeError as error:
            refusal = error
        except Exception:  # the hasher takes only texts of another form
            return
    raise ConfigError(f"stream {stream!r}: the hasher must take a text, and does not: {refusal}")


def _sampled(hasher: Hasher, stream: str, key: str, count: int) -> str:
    try:
        answer: Any = hasher(key)
    except Exception:  # the hasher takes only other keys, such as numbers
        return "none"
    try:
        # `index` takes only ints, including numpy's.
        return str(operator.index(answer) % count)
    except TypeError as error:
        raise ConfigError(
            f"stream {stream!r}: the hasher must return an int, and returned {answer!r} for the "
            f"key {key!r}"
        ) from error


def hashed(hasher: Hasher, key: str, count: int) -> int:
    """Return the partition of a key by a user's hasher.

    Raises:
        RecordError: the hasher raised an error, or did not return an int.
    """
    try:
        return operator.index(hasher(key)) % count
    except Exception as error:
        raise RecordError(
            f"the hasher gave no partition for the key {key!r}: {type(error).__name__}: {error}"
        ) from error

"""Hold hashes in Redis to their contract on a Redis in memory."""

from layout_contract import *  # noqa: F403

"""Hold a hasher to its contract on a Redis in memory."""

from hasher_contract import *  # noqa: F403

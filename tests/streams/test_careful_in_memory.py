"""Hold careful owners to their contract on a Redis in memory."""

from careful_contract import *  # noqa: F403

"""Hold the Redis in memory to what a real one does, step by step."""

from steps_contract import *  # noqa: F403

"""Hold the Redis in memory to what a real one does, step by step."""

from script_arguments_contract import *  # noqa: F403
from steps_contract import *  # noqa: F403

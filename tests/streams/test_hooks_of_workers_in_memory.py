"""Hold hooks to their contract in memory, in virtual time."""

from hooks_contract import *  # noqa: F403

"""Hold retention to its contract in memory, in virtual time."""

from retention_contract import *  # noqa: F403

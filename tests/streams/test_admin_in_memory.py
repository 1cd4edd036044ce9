"""Hold what operators see to its contract in memory, in virtual time."""

from admin_contract import *  # noqa: F403

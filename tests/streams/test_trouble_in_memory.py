"""Hold failing processors to their contract in memory, in virtual time."""

from trouble_contract import *  # noqa: F403

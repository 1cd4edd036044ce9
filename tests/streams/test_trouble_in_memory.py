"""Hold failing processors to their contract on servers in memory, in virtual time."""

from trouble_contract import *  # noqa: F403

"""Hold moves of offsets to their contract in memory, in virtual time."""

from offsets_contract import *  # noqa: F403

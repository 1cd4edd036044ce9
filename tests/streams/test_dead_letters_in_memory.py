"""Hold dead letters to their contract in memory, in virtual time."""

from dead_letters_contract import *  # noqa: F403

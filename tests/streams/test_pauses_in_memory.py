"""Hold workers to the contract of pauses in memory, in virtual time."""

from pauses_contract import *  # noqa: F403

"""Hold workers to the contract of failures in memory, in virtual time."""

from failures_contract import *  # noqa: F403

"""Hold workers to their contract on servers in memory, in virtual time."""

from workers_contract import *  # noqa: F403

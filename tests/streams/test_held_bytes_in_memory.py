"""Hold workers to their bounds of bytes in memory, in virtual time."""

from held_bytes_contract import *  # noqa: F403

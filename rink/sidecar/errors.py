"""Define the error of a request that is refused."""

from __future__ import annotations


class Refused(Exception):  # noqa: N818 - it refuses one request, and is no fault
    """Refuse a request, with a status and a sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status

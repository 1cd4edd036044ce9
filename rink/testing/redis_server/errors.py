"""Define the errors of calls to a test's Redis server.

RinkError
RedisServerError                  the server answered with an error
RedisServerUnavailable            the server did not answer, or is not healthy
"""

from __future__ import annotations

from rink.errors import RinkError


class RedisServerError(RinkError):
    """Report that a Redis server of a test failed; the message names it.

    Attributes:
        code: the first word of the answer, such as "MOVED" or "NOAUTH"; "" without an answer.
    """

    def __init__(self, *args: object, code: str = "") -> None:
        super().__init__(*args)
        self.code = code


class RedisServerUnavailable(RedisServerError):  # noqa: N818 - as the other public errors are named
    """Report that a Redis server did not answer or was not healthy in time.

    It may have executed the command nevertheless.
    """

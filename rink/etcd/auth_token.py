"""Log in when a token is first needed, and again when etcd refuses it.

etcd's simple tokens end with a server's restart, and after 5 minutes without use. The client learns
this only by the refusal. The token is sent as plain metadata, because gRPC refuses call
credentials on a connection without TLS.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from rink.etcd.proto import rinketcd_pb2 as pb

Authenticate = Callable[[pb.AuthenticateRequest], str]


class Tokens(Protocol):
    """Give the token for each request."""

    @property
    def can_refresh(self) -> bool:
        """Return whether a refused token can be replaced by a new one."""

    def get(self, authenticate: Authenticate, seconds: float) -> str | None:
        """Return the token to send, or None.

        `authenticate` requests a new token from etcd, if one is needed. If another thread does so
        for longer than `seconds`, this raises a TimeoutError.
        """

    def refused(self, token: str | None) -> None:
        """Note that etcd refused this token."""


class UserTokens:
    """Keep the token of a user whose password is known.

    Thread-safe. One thread authenticates for all.
    """

    can_refresh = True

    def __init__(self, user: str, password: str) -> None:
        self._request = pb.AuthenticateRequest(name=user, password=password)
        self._lock = threading.Lock()
        self._token: str | None = None

    def get(self, authenticate: Authenticate, seconds: float) -> str | None:
        """Return the token, after a login if there is none.

        An empty token means that the cluster has authentication switched off. Then none is sent.
        """
        token = self._token
        if token is not None:
            return token or None
        if not self._lock.acquire(timeout=max(seconds, 0.0)):
            raise TimeoutError
        try:
            token = self._token
            if token is None:
                token = self._token = authenticate(self._request)
            return token or None
        finally:
            self._lock.release()

    def refused(self, token: str | None) -> None:
        """Forget the token, unless another thread has replaced it already."""
        # This does not take the lock, which is held during a login. If a race drops a new token,
        # that costs only one more login.
        if (self._token or None) == token:
            self._token = None


class GivenTokens:
    """Read the token that an application's own client keeps, if any."""

    can_refresh = False

    def __init__(self, read: Callable[[], str | None] = lambda: None) -> None:
        self._read = read

    def get(
        self,
        authenticate: Authenticate,  # noqa: ARG002 - UserTokens needs it
        seconds: float,  # noqa: ARG002 - UserTokens needs it
    ) -> str | None:
        """Return the token that the application's client has now."""
        return self._read()

    def refused(self, token: str | None) -> None:
        """Do nothing: only the application can replace a refused token."""

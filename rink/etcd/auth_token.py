"""The user's token: taken when first needed, and again when etcd refuses it.

etcd's simple tokens die with a server's restart and with 5 minutes of rest; nobody tells the client
but the refusal. The token goes as plain metadata: as gRPC call credentials it would be refused on a
connection without TLS.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from rink.etcd.proto import rinketcd_pb2 as pb

Authenticate = Callable[[pb.AuthenticateRequest], str]


class Tokens(Protocol):
    """Where the token for a request comes from."""

    @property
    def can_refresh(self) -> bool:
        """Return whether a refused token may be replaced by a new one."""
        ...

    def get(self, authenticate: Authenticate, seconds: float) -> str | None:
        """Return the token to send, or None.

        `authenticate` is called where a new one is needed.

        Args:
            authenticate: asks etcd for a token.
            seconds: how long to wait while another thread authenticates.

        Raises:
            TimeoutError: it took longer.
        """
        ...

    def refused(self, token: str | None) -> None:
        """Note that this token was not accepted."""
        ...


class UserTokens:
    """The tokens of a user whose password is known. Thread-safe; one authenticates for all."""

    can_refresh = True

    def __init__(self, user: str, password: str) -> None:
        self._request = pb.AuthenticateRequest(name=user, password=password)
        self._lock = threading.Lock()
        self._token: str | None = None

    def get(self, authenticate: Authenticate, seconds: float) -> str | None:
        """Return the token, taken anew where there is none.

        An empty one says that the cluster has authentication switched off: none is sent then.
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
        """Forget it, unless another thread has replaced it already."""
        # Without the lock, which is held while somebody authenticates: a new token lost to this
        # race is only one more login.
        if (self._token or None) == token:
            self._token = None


class GivenTokens:
    """Tokens that an application's own client keeps, or none at all."""

    can_refresh = False

    def __init__(self, read: Callable[[], str | None] = lambda: None) -> None:
        self._read = read

    def get(
        self,
        authenticate: Authenticate,  # noqa: ARG002 - the other kind needs it
        seconds: float,  # noqa: ARG002 - the other kind needs it
    ) -> str | None:
        """Return what the application's client has now."""
        return self._read()

    def refused(self, token: str | None) -> None:
        """Do nothing: nothing can be done here about a refused token."""

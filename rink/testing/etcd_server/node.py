"""Control one etcd server of a test, and read its health."""

from __future__ import annotations

import contextlib
import http.client
import json
import urllib.request
from typing import TYPE_CHECKING

from rink.errors import EtcdUnavailable
from rink.testing.process.server import ServerNode

if TYPE_CHECKING:
    import ssl

    from rink.testing.process.process import Process


class EtcdNode(ServerNode):
    """Control one etcd server of `local_etcd` or `etcd_cluster`.

    Each method that changes the process raises `rink.errors.UsageError` if the server was given by
    its address.

    Attributes:
        name: the member name.
        endpoint: the endpoint for clients, `http://127.0.0.1:PORT` (`https://` with TLS).
    """

    _serves = "etcd"
    _unavailable_class = EtcdUnavailable

    def __init__(
        self,
        name: str,
        endpoint: str,
        process: Process,
        *,
        health_url: str,
        deadline: float,
        context: ssl.SSLContext | None = None,
        is_alone: bool = False,
    ) -> None:
        super().__init__(name, endpoint, process, deadline=deadline)
        self._health_url = health_url
        self._context = context
        self._is_alone = is_alone

    @property
    def is_healthy(self) -> bool:
        """Return whether the server has a leader and can read through a quorum.

        It must answer within a second.
        """
        try:
            health = json.loads(self._get("/health"))
        except (OSError, ValueError):
            return False
        return str(health.get("health")).lower() == "true"

    @property
    def is_leader(self) -> bool:
        """Return whether the server reports within a second that it leads."""
        try:
            return "\netcd_server_is_leader 1\n" in self._get("/metrics")
        except OSError:
            return False

    def kill(self) -> None:
        """Kill the server (SIGKILL), as a crash does, and wait until it is gone.

        Before 3.4.21 and 3.5.5, a single-node etcd acknowledges a write before its log holds it
        (etcd's issue 14370). So this method first reads, for at most a second. Then no write that
        was acknowledged before the call is lost.
        """
        if self._is_alone and self.is_running and not self.is_frozen:
            # A linearizable read is answered only when the log holds every acknowledged write.
            with contextlib.suppress(http.client.HTTPException):  # the server ends meanwhile
                _ = self.is_healthy
        super().kill()

    def _get(self, path: str) -> str:
        # One second is long on loopback. A server that hangs counts as unhealthy.
        url = self._health_url + path
        with urllib.request.urlopen(url, timeout=1.0, context=self._context) as answer:
            return str(answer.read().decode())

"""One etcd server of a test: its verbs are those of every server, its health is etcd's."""

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
    """One etcd server, made by `local_etcd` or `etcd_cluster`.

    Every verb that changes the process raises `rink.errors.UsageError` where the server was given
    by its address.

    Attributes:
        name: its member name.
        endpoint: where clients reach it, `http://127.0.0.1:PORT` (`https://` with TLS).
    """

    _serves = "etcd"
    _unavailable = EtcdUnavailable

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
        """Return whether it can serve.

        It answers within a second that it has a leader and can read through a quorum.
        """
        try:
            health = json.loads(self._get("/health"))
        except (OSError, ValueError):
            return False
        return str(health.get("health")).lower() == "true"

    @property
    def is_leader(self) -> bool:
        """Return whether it answers within a second that it leads."""
        try:
            return "\netcd_server_is_leader 1\n" in self._get("/metrics")
        except OSError:
            return False

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash does; returns when the process is gone.

        Before 3.4.21 and 3.5.5 an etcd without others answers a write before it is in its log
        (etcd's issue 14370). What it answered before this call is kept here all the same, if it
        answers once more within a second.
        """
        if self._is_alone and self.is_running and not self.is_frozen:
            # A linearizable read is answered when the log holds every write that was answered.
            with contextlib.suppress(http.client.HTTPException):  # it ends meanwhile
                _ = self.is_healthy
        super().kill()

    def _get(self, path: str) -> str:
        # A server that hangs is as bad as one that is gone, and 1 s is long on loopback.
        url = self._health_url + path
        with urllib.request.urlopen(url, timeout=1.0, context=self._context) as answer:
            return str(answer.read().decode())

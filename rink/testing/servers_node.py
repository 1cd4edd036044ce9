"""One etcd server of a test: start it, kill it, freeze it, ask how it is.

The verbs are synchronous; a node that is down may be killed and a frozen one frozen. They may be
called from any thread.
"""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from typing import TYPE_CHECKING

from rink.errors import EtcdUnavailable

if TYPE_CHECKING:
    import ssl
    from pathlib import Path

    from rink.testing.servers_process import Process

_LOOK_EVERY_S = 0.02


class EtcdNode:
    """One etcd server, made by `local_etcd` or `etcd_cluster`.

    Every verb that changes the process raises `rink.errors.UsageError` where the server was given
    by its address.

    Attributes:
        name: its member name.
        endpoint: where clients reach it, `http://127.0.0.1:PORT` (`https://` with TLS).
    """

    def __init__(
        self,
        name: str,
        endpoint: str,
        process: Process,
        *,
        health_url: str,
        deadline: float,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.name = name
        self.endpoint = endpoint
        self._process = process
        self._health_url = health_url
        self._deadline = deadline
        self._context = context
        self._frozen = False

    def __repr__(self) -> str:
        return f"<EtcdNode {self.name} {self.endpoint}>"

    @property
    def pid(self) -> int | None:
        """Its process id on this machine; None while it does not run, and where it is elsewhere."""
        return self._process.pid if self.is_running else None

    @property
    def log_path(self) -> Path | None:
        """The file that holds what the server printed, where there is one."""
        return self._process.log_path

    @property
    def is_running(self) -> bool:
        """The process exists (a frozen one does)."""
        return self._process.is_running()

    @property
    def is_frozen(self) -> bool:
        """It was frozen, and neither thawed nor ended since."""
        return self._frozen and self.is_running

    @property
    def is_healthy(self) -> bool:
        """It answers within a second that it has a leader and can read through a quorum."""
        try:
            health = json.loads(self._get("/health"))
        except (OSError, ValueError):
            return False
        return str(health.get("health")).lower() == "true"

    @property
    def is_leader(self) -> bool:
        """It answers within a second that it leads its cluster."""
        try:
            return "\netcd_server_is_leader 1\n" in self._get("/metrics")
        except OSError:
            return False

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash does; returns when the process is gone."""
        self._process.signal(signal.SIGKILL)
        self._wait_gone()

    def stop(self) -> None:
        """End it orderly (SIGTERM); a frozen one is thawed first.

        Raises:
            EtcdUnavailable: it had not ended by the deadline.
        """
        self.thaw()
        self._process.signal(signal.SIGTERM)
        self._wait_gone()

    def freeze(self) -> None:
        """Keep it from running (SIGSTOP): its connections stay open and nothing answers.

        Returns when the whole process has stopped (on macOS only from Python 3.13 on).

        Raises:
            EtcdError: it had not within half a minute.
        """
        self._process.signal(signal.SIGSTOP)
        self._frozen = True

    def thaw(self) -> None:
        """Let a frozen one go on (SIGCONT)."""
        self._process.signal(signal.SIGCONT)
        self._frozen = False

    def start(self, *, wait: bool = True) -> None:
        """Start it on the data and the ports it had; one that runs is left alone.

        Args:
            wait: return when it is healthy. Without a quorum it never is: pass False there.

        Raises:
            EtcdUnavailable: it ended, or was not healthy by the deadline.
        """
        if not self.is_running:
            self._process.start()
            self._frozen = False
        if wait:
            self.wait_healthy()

    def restart(self, *, wait: bool = True) -> None:
        """Stop it orderly and start it again; see `start` for the rest."""
        self.stop()
        self.start(wait=wait)

    def wait_healthy(self, timeout: float | None = None) -> None:
        """Wait until it is healthy.

        Args:
            timeout: seconds; None is the deadline that the server was made with.

        Raises:
            EtcdUnavailable: it ended, or was not healthy in time; shows the log's last lines.
        """
        timeout = self._deadline if timeout is None else timeout
        end = time.monotonic() + timeout
        while not self.is_healthy:
            if not self.is_running:
                raise self._trouble("is not running")
            if time.monotonic() > end:
                raise self._trouble(f"was not healthy within {timeout:g} s")
            time.sleep(_LOOK_EVERY_S)

    def log_tail(self, lines: int = 15) -> str:
        """The last lines that the server printed; before them the first two, if that is not all.

        (Where it refuses an argument it says that first, and then prints its long usage.)
        """
        said = self._process.log().splitlines()
        if len(said) > lines + 2:
            said = [*said[:2], "…", *said[-lines:]]
        return "\n".join(said)

    def _trouble(self, what: str) -> EtcdUnavailable:
        return EtcdUnavailable(
            f"etcd {self.name} at {self.endpoint} {what}; its log:\n{self.log_tail()}"
        )

    def _get(self, path: str) -> str:
        # A server that hangs is as bad as one that is gone, and 1 s is long on loopback.
        url = self._health_url + path
        with urllib.request.urlopen(url, timeout=1.0, context=self._context) as answer:
            return str(answer.read().decode())

    def _wait_gone(self) -> None:
        end = time.monotonic() + self._deadline
        while self.is_running:
            if time.monotonic() > end:
                raise self._trouble("did not end")
            time.sleep(_LOOK_EVERY_S)
        self._frozen = False

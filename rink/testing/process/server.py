"""What every server of a test can, whatever it serves: be started, killed, frozen, and waited for.

The verbs are synchronous; a node that is down may be killed and a frozen one frozen. They may be
called from any thread.
"""

from __future__ import annotations

import signal
import ssl
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

import attrs

from rink.errors import ConfigError
from rink.testing.process.process import GivenProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from rink.errors import RinkError
    from rink.testing.process.process import Process

_LOOK_EVERY_S = 0.02


class NoEtcdError(ConfigError):
    """Say that this machine has no etcd to start, and what would help a test."""


@attrs.frozen
class TlsFiles:
    """PEM files for a server's client port.

    Attributes:
        ca: who signed the clients' certificates, and the server's.
        cert: the server's certificate, valid for 127.0.0.1 and, since etcd also uses it as a
            client of itself, for client use.
        key: the key of that certificate.
        client_cert_auth: refuse clients without a certificate signed by `ca`.
    """

    ca: Path
    cert: Path
    key: Path
    client_cert_auth: bool = False

    def context(self) -> ssl.SSLContext:
        """Return how we speak with that server ourselves."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.cert, self.key)
        return context


class ServerNode(ABC):
    """One server; `EtcdNode` and `RedisNode` say what it serves and when it is healthy.

    Every verb that changes the process raises `rink.errors.UsageError` where the server was given
    by its address.

    Attributes:
        name: its name among the servers it was made with.
        endpoint: where clients reach it.
    """

    _serves: ClassVar[str]
    _unavailable: ClassVar[type[RinkError]]

    def __init__(self, name: str, endpoint: str, process: Process, *, deadline: float) -> None:
        self.name = name
        self.endpoint = endpoint
        self._process = process
        self._deadline = deadline
        self._frozen = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.endpoint}>"

    @property
    def pid(self) -> int | None:
        """Its process id on this machine; None while it does not run, and where it is elsewhere."""
        return self._process.pid if self.is_running else None

    @property
    def log_path(self) -> Path | None:
        """The file that holds what the server printed, where there is one."""
        return self._process.log_path

    @property
    def is_given(self) -> bool:
        """Somebody else runs it: it was given by its address, and can only be used."""
        return isinstance(self._process, GivenProcess)

    @property
    def is_running(self) -> bool:
        """The process exists (a frozen one does)."""
        return self._process.is_running()

    @property
    def is_frozen(self) -> bool:
        """Return whether it was frozen, and neither thawed nor ended since."""
        return self._frozen and self.is_running

    @property
    @abstractmethod
    def is_healthy(self) -> bool:
        """Return whether it answers within a second that it can serve."""

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
            EtcdError: it had not within half a minute; of a Redis, RedisError.
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
            wait: return when it is healthy. An etcd without a quorum never is: pass False there.

        Raises:
            EtcdUnavailable: it ended, or was not healthy by the deadline; of a Redis,
                RedisUnavailable.
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
            EtcdUnavailable: it ended, or was not healthy in time; shows the log's last lines. Of a
                Redis, RedisUnavailable.
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

        (Where etcd refuses an argument it says that first, and then prints its long usage.)
        """
        said = self._process.log().splitlines()
        if len(said) > lines + 2:
            said = [*said[:2], "…", *said[-lines:]]
        return "\n".join(said)

    def _trouble(self, what: str) -> RinkError:
        return self._unavailable(
            f"{self._serves} {self.name} at {self.endpoint} {what}; its log:\n{self.log_tail()}"
        )

    def _wait_gone(self, is_gone: Callable[[], bool] | None = None) -> None:
        if not wait_until(is_gone or (lambda: not self.is_running), self._deadline):
            raise self._trouble("did not end")
        self._frozen = False


_Node = TypeVar("_Node", bound=ServerNode)


def awake(nodes: tuple[_Node, ...]) -> list[_Node]:
    """Return the servers that run and are not frozen."""
    return [node for node in nodes if node.is_running and not node.is_frozen]


def wait_until(look: Callable[[], bool], timeout: float) -> bool:
    """Look now and then until something is so; False when it was not within so many seconds."""
    end = time.monotonic() + timeout
    while not look():
        if time.monotonic() > end:
            return False
        time.sleep(_LOOK_EVERY_S)
    return True

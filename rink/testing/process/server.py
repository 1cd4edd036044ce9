"""Start, stop, kill and freeze one server of a test.

The methods are synchronous and thread-safe. Killing an ended server does nothing, and freezing a
frozen server does nothing.
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

_POLL_INTERVAL_S = 0.02


class NoEtcdError(ConfigError):
    """Report that this machine has no etcd to start, and how to get one."""


@attrs.frozen
class TlsFiles:
    """Name the PEM files for a server's client port.

    Attributes:
        ca: the authority that signed the certificates of clients and server.
        cert: the server's certificate, valid for 127.0.0.1. It must allow client use too, because
            etcd is also a client of itself.
        key: the key of that certificate.
        client_cert_auth: refuse clients without a certificate signed by `ca`.
    """

    ca: Path
    cert: Path
    key: Path
    client_cert_auth: bool = False

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for a client of the server."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.cert, self.key)
        return context


class ServerNode(ABC):
    """Control one server of a test, an `EtcdNode` or a `RedisNode`.

    Each method that changes the process raises `rink.errors.UsageError` if the server was given by
    its address.

    Attributes:
        name: the server's name among the servers that were started together.
        endpoint: the address for clients.
    """

    _serves: ClassVar[str]
    _unavailable_class: ClassVar[type[RinkError]]

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
        """Return the server's process id on this machine, or None."""
        return self._process.pid if self.is_running else None

    @property
    def log_path(self) -> Path | None:
        """Return the file with the server's output, or None."""
        return self._process.log_path

    @property
    def is_given(self) -> bool:
        """Return whether the server was given by its address."""
        return isinstance(self._process, GivenProcess)

    @property
    def is_running(self) -> bool:
        """Return whether the process exists, running or frozen."""
        return self._process.is_running()

    @property
    def is_frozen(self) -> bool:
        """Return whether the server was frozen, and neither thawed nor ended."""
        return self._frozen and self.is_running

    @property
    @abstractmethod
    def is_healthy(self) -> bool:
        """Return whether the server reports within a second that it can serve."""

    def kill(self) -> None:
        """Kill the server (SIGKILL), as a crash does, and wait until it is gone."""
        self._process.signal(signal.SIGKILL)
        self._wait_gone()

    def stop(self) -> None:
        """Shut the server down (SIGTERM). Thaw it first if it is frozen.

        Raises:
            EtcdUnavailable: the server had not ended by the deadline.
        """
        self.thaw()
        self._process.signal(signal.SIGTERM)
        self._wait_gone()

    def freeze(self) -> None:
        """Stop the process (SIGSTOP): connections stay open, and nothing answers.

        Return when the whole process has stopped (on macOS only from Python 3.13 on).

        Raises:
            EtcdError: the process had not stopped within 30 s; for a Redis, RedisServerError.
        """
        self._process.signal(signal.SIGSTOP)
        self._frozen = True

    def thaw(self) -> None:
        """Continue a frozen process (SIGCONT)."""
        self._process.signal(signal.SIGCONT)
        self._frozen = False

    def start(self, *, wait: bool = True) -> None:
        """Start the server on its data and ports, unless it runs.

        Args:
            wait: return only when the server is healthy. Pass False for an etcd without a quorum,
                which is never healthy.

        Raises:
            EtcdUnavailable: the server ended, or was not healthy by the deadline; for a Redis,
                RedisServerUnavailable.
        """
        if not self.is_running:
            self._process.start()
            self._frozen = False
        if wait:
            self.wait_healthy()

    def restart(self, *, wait: bool = True) -> None:
        """Stop the server and start it again, as `stop` and `start` do."""
        self.stop()
        self.start(wait=wait)

    def wait_healthy(self, timeout: float | None = None) -> None:
        """Wait until the server is healthy.

        Args:
            timeout: seconds; None is the server's own `deadline`.

        Raises:
            EtcdUnavailable: the server ended, or was not healthy in time; shows the end of its log.
                For a Redis, RedisServerUnavailable.
        """
        timeout = self._deadline if timeout is None else timeout
        end = time.monotonic() + timeout
        while not self.is_healthy:
            if not self.is_running:
                raise self._unavailable("is not running")
            if time.monotonic() > end:
                raise self._unavailable(f"was not healthy within {timeout:g} s")
            time.sleep(_POLL_INTERVAL_S)

    def log_tail(self, lines: int = 15) -> str:
        """Return the first two and the last lines of the server's output."""
        # When etcd refuses an argument, the first lines have the reason, and the usage follows.
        output = self._process.log().splitlines()
        if len(output) > lines + 2:
            output = [*output[:2], "…", *output[-lines:]]
        return "\n".join(output)

    def _unavailable(self, problem: str) -> RinkError:
        return self._unavailable_class(
            f"{self._serves} {self.name} at {self.endpoint} {problem}; its log:\n{self.log_tail()}"
        )

    def _wait_gone(self, is_gone: Callable[[], bool] | None = None) -> None:
        if not wait_until(is_gone or (lambda: not self.is_running), self._deadline):
            raise self._unavailable(f"did not end within {self._deadline:g} s")
        self._frozen = False


_Node = TypeVar("_Node", bound=ServerNode)


def awake(nodes: tuple[_Node, ...]) -> list[_Node]:
    """Return the servers that run and are not frozen."""
    return [node for node in nodes if node.is_running and not node.is_frozen]


def wait_until(condition: Callable[[], bool], timeout: float) -> bool:
    """Poll a condition until it holds; return False after the timeout."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(_POLL_INTERVAL_S)
    return True

"""Run the process of a test server, or represent a given server."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from rink.errors import EtcdError, RinkError, UsageError

if TYPE_CHECKING:
    import signal

_REAPER = Path(__file__).with_name("reaper.py")


class Process(Protocol):
    """Control a server's process. A signal to an ended process does nothing."""

    @property
    def pid(self) -> int | None:
        """Return the process id; None if the process is not on this machine."""

    @property
    def log_path(self) -> Path | None:
        """Return the file with the process's output, or None."""

    def start(self) -> None:
        """Start the process, which must not be running."""

    def is_running(self) -> bool:
        """Return whether the process exists, running or frozen."""

    def signal(self, number: signal.Signals) -> None:
        """Send SIGKILL, SIGTERM or SIGCONT, or SIGSTOP and wait for the stop."""

    def log(self) -> str:
        """Return the process's output."""


class ProcessOwner(Protocol):
    """Own the processes of one cluster, so that none outlives the test."""

    def process(
        self, arguments: list[str], log_path: Path, command: tuple[str, ...] = ()
    ) -> Process:
        """Return an unstarted process; `command` precedes the server's command."""

    def close(self) -> None:
        """Kill all servers, remove the folders, and wait until both are done."""


class ServerReaper:
    """Start a reaper process, and send it requests, as a `ProcessOwner`.

    The reaper removes the folders when it ends. If it fails, this raises the class `error`.
    """

    def __init__(
        self, binary: Path, folders: list[Path], *, error: type[RinkError] = EtcdError
    ) -> None:
        self._binary = binary
        self._error = error
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._folders = folders
        # In a separate session, Ctrl-C in the terminal does not reach the servers before the tests
        # have ended.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_REAPER), str(os.getpid()), *map(str, folders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Return the reaper's process id."""
        return self._process.pid

    def ask(self, do: str, **more: Any) -> Any:
        """Send the reaper a request, and return its answer.

        Raises:
            UsageError: a forked child called this. Its answers would be mixed with its parent's.
            RinkError: the reaper failed or has ended. The class is the `error` of this object.
        """
        if os.getpid() != self._owner:
            raise UsageError(
                "a test server was used in a forked child: use it in the process that started it"
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            try:
                self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
            except (OSError, ValueError):
                line = ""
        if not line:
            raise self._error(f"the reaper of the test servers has ended (request {do!r})")
        reply = json.loads(line)
        if "error" in reply:
            raise self._error(
                f"the reaper of the test servers failed at the request {do!r}: {reply['error']}"
            )
        return reply["is"]

    def process(
        self, arguments: list[str], log_path: Path, command: tuple[str, ...] = ()
    ) -> ReapedProcess:
        """Return an unstarted process; `command` precedes the server's command."""
        return ReapedProcess(self, [*command, str(self._binary), *arguments], log_path)

    def close(self) -> None:
        """Kill all servers, remove the folders, and wait until both are done."""
        if os.getpid() != self._owner:
            return
        # The `with` closes the pipes, which ends the reaper, and waits for it. If the reaper was
        # killed, a request may still lie in the pipe's buffer, and closing raises.
        with contextlib.suppress(BrokenPipeError), self._process:
            pass
        self._process.wait()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)  # in case the reaper was killed


class ReapedProcess:
    """Control a process that a reaper starts and signals."""

    def __init__(self, reaper: ServerReaper, command: list[str], log_path: Path) -> None:
        self.pid: int | None = None
        self.log_path = log_path  # it gets the output of all starts
        self._reaper = reaper
        self._command = command

    def start(self) -> None:
        """Start the process, without etcd's environment variables.

        Raises:
            RinkError: the reaper cannot run the command.
        """
        # Variables such as ETCD_NAME in the caller's shell would configure the server. A locale
        # that is not installed would keep a Redis from starting.
        env = {key: value for key, value in os.environ.items() if not key.startswith("ETCD")}
        env["LC_ALL"] = "C"
        self.pid = self._reaper.ask("start", command=self._command, env=env, log=str(self.log_path))

    def is_running(self) -> bool:
        """Return whether the process exists, running or frozen."""
        return self.pid is not None and bool(self._reaper.ask("running", pid=self.pid))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.pid is not None:
            self._reaper.ask("signal", pid=self.pid, signal=number.value)

    def log(self) -> str:
        """Return the output of all starts."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""


class GivenProcess:
    """Represent a given server, which cannot be killed or frozen.

    Messages name the kind of server, and the setting that gave it.
    """

    pid: int | None = None
    log_path: Path | None = None

    def __init__(
        self, endpoint: str, serves: str = "etcd", given_by: str = "endpoint= or RINK_TEST_ETCD"
    ) -> None:
        self._endpoint = endpoint
        self._serves = serves
        self._given_by = given_by

    def start(self) -> NoReturn:
        """Raise UsageError."""
        raise UsageError(
            f"the {self._serves} at {self._endpoint} was given by {self._given_by}, not started "
            "here: it cannot be killed, frozen, stopped or started"
        )

    def is_running(self) -> bool:
        """Return True, since only the server's health shows whether it runs."""
        return True

    def signal(self, number: signal.Signals) -> NoReturn:
        """Refuse the signal, as `start` does."""
        self.start()

    def log(self) -> str:
        """Return a note instead of the log."""
        return f"(no log: the {self._serves} was given by {self._given_by})"

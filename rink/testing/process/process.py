"""What runs a test server: a child of the guard, or somebody else.

A `ServerNode` holds one of these and gives its verbs their meaning.
"""

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

_GUARD = Path(__file__).with_name("reaper.py")


class Process(Protocol):
    """A server's process; signals to one that is not running do nothing."""

    @property
    def pid(self) -> int | None:
        """The process id on this machine, where there is one."""
        ...

    @property
    def log_path(self) -> Path | None:
        """The file that holds what it printed, where there is one."""
        ...

    def start(self) -> None:
        """Start it; it is not running."""
        ...

    def is_running(self) -> bool:
        """The process exists; True for a frozen one."""
        ...

    def signal(self, number: signal.Signals) -> None:
        """Send SIGKILL, SIGTERM, SIGSTOP or SIGCONT; of SIGSTOP see the effect."""
        ...

    def log(self) -> str:
        """Return what it printed."""
        ...


class ProcessOwner(Protocol):
    """Who answers for the servers of one cluster, so that none outlives the test."""

    def process(
        self, arguments: list[str], log_path: Path, command: tuple[str, ...] = ()
    ) -> Process:
        """A server that is not started yet; `command` stands before its own."""
        ...

    def close(self) -> None:
        """End all servers, remove the folders and wait until that is done."""
        ...


class ServerReaper:
    """Our end of the guard process, see `servers_guard`; an `ProcessOwner`.

    Args:
        binary: the server's.
        folders: what the guard removes when it ends.
        error: what is raised where the guard cannot do as asked.
    """

    def __init__(
        self, binary: Path, folders: list[Path], *, error: type[RinkError] = EtcdError
    ) -> None:
        self._binary = binary
        self._error = error
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._folders = folders
        # A session of its own: Ctrl-C in the terminal must not reach the servers before the
        # tests that use them have ended.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), *map(str, folders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The guard's process id."""
        return self._process.pid

    def ask(self, do: str, **more: Any) -> Any:
        """Make the guard do something, and return its answer.

        Raises:
            UsageError: called in a forked child, whose answers would be mixed with its parent's.
            RinkError: the `error` it was made with: the guard could not do it, or is gone.
        """
        if os.getpid() != self._owner:
            raise UsageError(
                "a test server was used in a forked child of the process it belongs to"
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
            raise self._error(f"the guard of the test servers has gone (asked to {do})")
        reply = json.loads(line)
        if "error" in reply:
            raise self._error(f"the guard could not {do}: {reply['error']}")
        return reply["is"]

    def process(
        self, arguments: list[str], log_path: Path, command: tuple[str, ...] = ()
    ) -> GuardedProcess:
        """A server of this guard's, not started yet; `command` stands before its own."""
        return GuardedProcess(self, [*command, str(self._binary), *arguments], log_path)

    def close(self) -> None:
        """Kill all servers, remove the folders and wait until that is done."""
        if os.getpid() != self._owner:
            return
        # Closes the pipes, which ends the guard, and waits for it. One that was killed has left us
        # with a request that cannot be sent.
        with contextlib.suppress(BrokenPipeError), self._process:
            pass
        self._process.wait()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)  # where the guard itself was killed


class GuardedProcess:
    """A server started here, through the guard.

    Args:
        guard: who owns the process.
        command: what to run, again after each end.
        log_path: where its output is appended.
    """

    def __init__(self, guard: ServerReaper, command: list[str], log_path: Path) -> None:
        self.pid: int | None = None
        self.log_path: Path | None = log_path
        self._log_path = log_path
        self._guard = guard
        self._command = command

    def start(self) -> None:
        """Start it with the environment cleared of etcd's settings.

        Raises:
            RinkError: the guard's error: it cannot be run.
        """
        # ETCD_NAME and the like in the caller's shell would configure our server; a locale that is
        # not installed here would keep a Redis from starting.
        env = {key: value for key, value in os.environ.items() if not key.startswith("ETCD")}
        env["LC_ALL"] = "C"
        self.pid = self._guard.ask("start", command=self._command, env=env, log=str(self._log_path))

    def is_running(self) -> bool:
        """The process exists; True for a frozen one."""
        return self.pid is not None and bool(self._guard.ask("running", pid=self.pid))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        if self.pid is not None:
            self._guard.ask("signal", pid=self.pid, signal=number.value)

    def log(self) -> str:
        """Return what it printed, from all its starts."""
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""


class GivenProcess:
    """A server that somebody else runs at a given address: it can be used, not killed or frozen.

    Args:
        endpoint: where.
        serves: what it is.
        given_by: how its address came to us.
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
        """Refuse, as `signal` does.

        Raises:
            UsageError: always.
        """
        raise UsageError(
            f"the {self._serves} at {self._endpoint} was given by {self._given_by}, not started "
            "here: it cannot be killed, frozen, stopped or started"
        )

    def is_running(self) -> bool:
        """Taken to be so; whether it answers is what health says."""
        return True

    def signal(self, number: signal.Signals) -> NoReturn:
        """Refuse.

        Raises:
            UsageError: always.
        """
        self.start()

    def log(self) -> str:
        """Return where the log would be found."""
        return f"(given by {self._given_by}: whoever started it has its log)"

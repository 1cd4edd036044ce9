"""Fork processes from one that has done their imports, and read them.

One thread reads for all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

JOIN_TIMEOUT_S = 120.0


class Child(Protocol):
    """Stand for a forked process, and read from it."""

    wire: socket.socket

    def read(self) -> bool:
        """Read from the child; return False once it has ended.

        Only one thread calls this.
        """


C = TypeVar("C", bound=Child)


class Zygote(Generic[C]):
    """Start a process that forks, and read from all its children in a thread.

    The process gets the number of a socket as its last argument. Each request on this socket brings
    a socket for a new child. The child's settings follow there, as a line of JSON.

    Args:
        command: starts the process.
        popen: further arguments of `subprocess.Popen`.
    """

    def __init__(self, command: list[str], **popen: Any) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests = ours
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # its children are in its process group
                **popen,
            )
        self._selector = selectors.DefaultSelector()
        self._wake, self._wakes = socket.socketpair()
        self._selector.register(self._wakes, selectors.EVENT_READ)
        self._new: queue.SimpleQueue[C | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="forks")
        self._reader.start()

    def fork(self, make: Callable[[socket.socket], C], settings: dict[str, Any]) -> C:
        """Fork a child.

        Args:
            make: returns an object that stands for the child here. It reads from the given socket.
            settings: the settings of the child.
        """
        ours, theirs = socket.socketpair()
        child = make(ours)
        with theirs, self._lock:
            socket.send_fds(self._requests, [b"fork"], [theirs.fileno()])
        ours.sendall(json.dumps(settings).encode() + b"\n")
        self._new.put(child)
        self._wake.send(b"x")
        return child

    def _read(self) -> None:
        alive, is_closing = 0, False
        while alive or not is_closing:  # once closed, all children are dead: read their last lines
            for key, _ in self._selector.select():
                if key.data is None:
                    self._wakes.recv(4096)
                    while not self._new.empty():
                        child = self._new.get()
                        if child is None:
                            is_closing = True
                            continue
                        alive += 1
                        self._selector.register(child.wire, selectors.EVENT_READ, child)
                elif not key.data.read():
                    self._selector.unregister(key.fileobj)
                    key.data.wire.close()
                    alive -= 1

    def close(self) -> None:
        """Kill all children and the process that forked them."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._new.put(None)
        self._wake.send(b"x")
        self._reader.join(JOIN_TIMEOUT_S)
        self._selector.close()
        for wire in (self._requests, self._wake, self._wakes):
            wire.close()

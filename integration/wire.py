"""Give a test a way to a server that it can cut.

It shows what SIGSTOP and SIGKILL of the server cannot: the server goes on for everybody else.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time

from rink.testing.process.ports import free_ports

HOST = "127.0.0.1"


class Wire:
    """Forward connections to an endpoint.

    Args:
        endpoint: the server's.
        host: the address to listen on.
        port: the port to listen on; a free one if None.
        pace: bytes a second in each direction, of all connections together; None is no bound.

    Attributes:
        endpoint: the address for a client, instead of the server's own.
        carried: how many bytes came from the server.
    """

    def __init__(
        self,
        endpoint: str,
        host: str = HOST,
        port: int | None = None,
        *,
        pace: float | None = None,
    ) -> None:
        self._to, self._from = _Pace(pace), _Pace(pace)
        self._server = HOST, int(endpoint.rpartition(":")[2])
        self._here = host, port or free_ports(1)[0]
        self.endpoint = f"http://{host}:{self._here[1]}"
        self._flows = threading.Event()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._ends: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.heal()

    @property
    def carried(self) -> int:
        """Return how many bytes came from the server."""
        return self._from.count

    def cut(self) -> None:
        """Break all connections, and refuse new ones."""
        with self._lock:
            listener, self._listener = self._listener, None
            for end in (*self._ends, *([listener] if listener else [])):
                _shut(end)
            self._flows.set()
        if listener:
            listener.close()

    def silence(self) -> None:
        """Deliver nothing, with connections left open.

        A network that drops its packets looks the same.
        """
        self._flows.clear()

    def heal(self) -> None:
        """Deliver what was kept back, and let everybody through."""
        with self._lock:
            if self._listener is None:
                self._listener = socket.create_server(self._here)
                self._begin(self._accept, self._listener)
            self._flows.set()

    def close(self) -> None:
        """End it, and wait until it has ended."""
        self.cut()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    def _begin(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, name="wire", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it was cut
            while True:
                theirs, _ = listener.accept()
                self._begin(self._carry, theirs)

    def _carry(self, theirs: socket.socket) -> None:
        with theirs, contextlib.suppress(OSError), socket.create_connection(self._server) as ours:
            with self._lock:
                if self._listener is None:
                    return
                self._ends |= {theirs, ours}
            back = threading.Thread(target=self._pump, args=(ours, theirs, self._from), name="wire")
            back.start()
            self._pump(theirs, ours, self._to)
            back.join()
            with self._lock:
                self._ends -= {theirs, ours}

    def _pump(self, source: socket.socket, sink: socket.socket, pace: _Pace) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._flows.wait()
                pace.wait(len(data))
                sink.sendall(data)
        _shut(source)
        _shut(sink)


class _Pace:
    """Limit the bytes per second of one direction, for all connections."""

    def __init__(self, rate: float | None) -> None:
        self.count = 0
        self._rate = rate
        self._free_at = 0.0
        self._lock = threading.Lock()

    def wait(self, size: int) -> None:
        with self._lock:
            self.count += size
            if self._rate is None:
                return
            now = time.monotonic()
            self._free_at = max(self._free_at, now) + size / self._rate
            pause = self._free_at - now
        time.sleep(pause)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side was first
        end.shutdown(socket.SHUT_RDWR)

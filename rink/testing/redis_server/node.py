"""Control one Redis server of a test, and copy its data."""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from rink.errors import UsageError
from rink.testing.process.server import ServerNode, wait_until
from rink.testing.redis_server.errors import RedisServerError, RedisServerUnavailable
from rink.testing.redis_server.url import endpoint_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rink.errors import RinkError
    from rink.testing.process.process import Process
    from rink.testing.process.server import TlsFiles

# One second is long on loopback. A server that hangs counts as unhealthy, as if it were gone.
_PING_TIMEOUT_S = 1.0
_SIGTERM_INTERVAL_S = 0.5


class RedisNode(ServerNode):
    """Control one server of `local_redis`, `redis_cluster` or `redis_pair`.

    Each method that changes the process raises `rink.errors.UsageError` if the server was given by
    its address.

    Attributes:
        name: the server's name among the servers that were started together.
        endpoint: the address, `redis://127.0.0.1:PORT` (`rediss://` with TLS).
        url: the endpoint for clients, with the password of the default user if there is one.
    """

    _serves = "Redis"
    _unavailable_class = RedisServerUnavailable

    def __init__(
        self,
        name: str,
        url: str,
        process: Process,
        *,
        deadline: float,
        data: Path | None = None,
        admin_url: str | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        super().__init__(name, endpoint_of(url), process, deadline=deadline)
        self.url = url
        self._admin_url = admin_url or url
        self._data = data
        self._tls = tls
        self._last_answer = "nothing yet"

    @property
    def host(self) -> str:
        """Return the host of the endpoint."""
        return str(urlsplit(self.endpoint).hostname)

    @property
    def port(self) -> int:
        """Return the port of the endpoint."""
        return int(urlsplit(self.endpoint).port or 0)

    @property
    def is_healthy(self) -> bool:
        """Return whether the server answers PING with PONG within a second.

        A server that still loads its data is not healthy.
        """
        try:
            self._last_answer = str(self.call("PING", timeout=_PING_TIMEOUT_S))
        except RedisServerError as error:
            self._last_answer = str(error)
        return self._last_answer == "PONG"

    def stop(self) -> None:
        """Shut the server down (SIGTERM). Thaw it first if it is frozen.

        While Redis writes its first append-only file, as after a promotion, it refuses to exit. So
        repeat the signal until the server has ended.

        Raises:
            RedisServerUnavailable: the server had not ended by the deadline.
        """
        self.thaw()

        def is_gone() -> bool:
            self._process.signal(signal.SIGTERM)
            return wait_until(lambda: not self.is_running, _SIGTERM_INTERVAL_S)

        self._wait_gone(is_gone)

    def call(self, *words: str | bytes | float, timeout: float = 5.0) -> Any:
        """Return the server's answer to one command, with strings decoded.

        The command runs as Rink's own user, which has all rights. It has its own connection, waits
        at most `timeout` seconds each time, and is never retried.

        Raises:
            RedisServerError: the server answered with an error; `code` is its first word.
            RedisServerUnavailable: the server did not answer in time.
        """
        from rink.testing.redis_server.command import send_command

        return send_command(self._admin_url, *words, timeout=timeout, tls=self._tls)

    def info(self, section: str) -> dict[str, str]:
        """Return the fields of a section of INFO, such as "replication".

        Raises:
            RedisServerError: see `call`.
        """
        return fields(self.call("INFO", section))

    def configure(self, name: str, value: str | None) -> None:
        """Write a setting for the next start into redis.conf; None removes it.

        Raises:
            UsageError: the server was given.
        """
        file = self._own_data("configured").with_name("redis.conf")
        kept = [line for line in file.read_text().splitlines() if line.split(" ")[0] != name]
        file.write_text("\n".join([*kept, *([] if value is None else [f"{name} {value}"])]) + "\n")

    def flush(self) -> None:
        """Remove all keys and cached scripts.

        If the server was given, remove only the keys of the database in its URL.

        Raises:
            RedisServerError: see `call`.
        """
        if self.is_given:
            self.call("FLUSHDB", "SYNC")
        else:
            self.call("FLUSHALL", "SYNC")
            self.call("SCRIPT", "FLUSH", "SYNC")

    def save_copy(self) -> Path:
        """Copy the current data, for `restore_copy`.

        The copy has the data that a crash at this moment would leave on disk. With an append-only
        file on a fast enough disk, these are all acknowledged writes. Without such a file, the
        server takes a snapshot first. A frozen or ended server can be copied, too.

        Returns:
            The folder of the copy, which is removed together with the server's folder.

        Raises:
            UsageError: the server was given.
            RedisServerError: the server could not take the snapshot.
        """
        data = self._own_data("copied")
        is_awake = self.is_running and not self.is_frozen
        if is_awake and self.info("persistence")["aof_enabled"] != "1":
            self.call("SAVE", timeout=self._deadline)
        copy = Path(tempfile.mkdtemp(prefix="copy-", dir=data.parent))
        with self._held():
            # A child of Redis writes a temporary file, and renames it once it is complete. After a
            # crash, Redis ignores an unfinished file, so the copy leaves it out.
            unfinished = shutil.ignore_patterns("temp-*")
            shutil.copytree(data, copy, ignore=unfinished, dirs_exist_ok=True)
        return copy

    def restore_copy(self, copy: Path, *, wait: bool = True) -> None:
        """Kill the server (SIGKILL) and start it on a copy.

        Later writes are lost.

        Args:
            copy: a copy by `save_copy`, of this server or of another server with the same settings.
                It may be used again.
            wait: as in `start`.

        Raises:
            UsageError: the server was given.
            RedisServerUnavailable: the server was not healthy by the deadline.
        """
        data = self._own_data("restored")
        self.kill()
        shutil.rmtree(data)
        shutil.copytree(copy, data)
        self.start(wait=wait)

    def _unavailable(self, problem: str) -> RinkError:
        return super()._unavailable(f"{problem} (last answer to PING: {self._last_answer})")

    def _own_data(self, done: str) -> Path:
        if self._data is None:
            raise UsageError(f"{self} cannot be {done}: it was not started here, or is a Sentinel")
        return self._data

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Stop the process for a moment, so that it writes nothing."""
        if self.is_frozen or not self.is_running:
            yield
            return
        self._process.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.signal(signal.SIGCONT)


def fields(text: object) -> dict[str, str]:
    """Return the fields of an answer to INFO or CLUSTER INFO."""
    pairs = (line.split(":", 1) for line in str(text).splitlines() if ":" in line)
    return {name: value.strip() for name, value in pairs}

"""One Redis of a test: its verbs are those of every server; its health is a PONG; its data can go back."""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rink.errors import UsageError
from rink.testing.process.server import ServerNode, wait_until
from rink.testing.redis_server.resp import (
    Address,
    RedisServerError,
    RedisUnavailable,
    Reply,
    Word,
    call,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

    from rink.errors import RinkError
    from rink.testing.process.process import Process

_ANSWERS_WITHIN_S = (
    1.0  # on loopback that is long, and one that hangs is as bad as one that is gone
)
_ASKED_TO_END_EVERY_S = 0.5


class RedisNode(ServerNode):
    """One Redis, made by `local_redis`, `redis_cluster` or `redis_pair`.

    Every verb that changes the process raises `rink.errors.UsageError` where the server was given
    by its address.

    Attributes:
        name: its name among the servers it was made with.
        endpoint: where it answers, `redis://127.0.0.1:PORT` (`rediss://` with TLS).
    """

    _serves = "Redis"
    _unavailable = RedisUnavailable

    def __init__(
        self,
        name: str,
        address: Address,
        process: Process,
        *,
        deadline: float,
        data: Path | None = None,
        ours: Address | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(name, address.bare, process, deadline=deadline)
        self._address = address
        self._ours = ours or address
        self._data = data
        self._context = context
        self._said = "nothing yet"

    @property
    def url(self) -> str:
        """Return the endpoint that clients are given.

        It has the default user's password if there is one.
        """
        return self._address.url

    @property
    def host(self) -> str:
        """The host of the endpoint."""
        return self._address.host

    @property
    def port(self) -> int:
        """The port of the endpoint."""
        return self._address.port

    @property
    def is_healthy(self) -> bool:
        """Return whether it answers PING within a second.

        A server that still loads its data does not.
        """
        try:
            said = self.call("PING", timeout=_ANSWERS_WITHIN_S)
        except RedisServerError as error:
            said = str(error)
        self._said = str(said)
        return self._said == "PONG"

    def stop(self) -> None:
        """End it orderly (SIGTERM); a frozen one is thawed first.

        While it writes its first append-only file, as after a promotion, Redis refuses ("can't
        exit") and runs on; so it is asked again until it has ended.

        Raises:
            RedisUnavailable: it had not ended by the deadline.
        """
        self.thaw()

        def is_gone() -> bool:
            self._process.signal(signal.SIGTERM)
            return wait_until(lambda: not self.is_running, _ASKED_TO_END_EVERY_S)

        self._wait_gone(is_gone)

    def call(self, *words: Word, timeout: float = 5.0) -> Reply:
        """Return what the server answers to one command.

        It is for a look at it, or to change a setting. It is sent by a user of our own that may do
        everything, over a connection of its own.

        Args:
            words: the command and its arguments.
            timeout: seconds for each wait.

        Raises:
            RedisError: it answered with an error; `code` has the first word.
            RedisUnavailable: it did not answer in time.
        """
        return call(self._ours, *words, timeout=timeout, context=self._context)

    def info(self, section: str) -> dict[str, str]:
        """One section of INFO, such as "replication", by its names.

        Raises:
            RedisError: as of `call`.
        """
        return fields(self.call("INFO", section))

    def configure(self, name: str, value: str | None) -> None:
        """Write a setting into its file, for its next start; None takes it out.

        Raises:
            UsageError: the server was given.
        """
        file = self._own_data("configured").with_name("redis.conf")
        kept = [line for line in file.read_text().splitlines() if line.split(" ")[0] != name]
        file.write_text("\n".join([*kept, *([] if value is None else [f"{name} {value}"])]) + "\n")

    def flush(self) -> None:
        """Remove all keys, and the scripts that it remembers; of one that was given, its database's.

        Raises:
            RedisError: as of `call`.
        """
        if self.is_given:
            self.call("FLUSHDB", "SYNC")
        else:
            self.call("FLUSHALL", "SYNC")
            self.call("SCRIPT", "FLUSH", "SYNC")

    def save_copy(self) -> Path:
        """Copy its data as it is now, for `restore_copy`.

        It is what a crash at this moment would leave on disk: all that was acknowledged, with an
        append-only file on a disk that keeps up. Without one, a snapshot is taken first. Works on a
        frozen and on an ended server too.

        Returns:
            The copy, a folder that is removed together with the server's.

        Raises:
            UsageError: the server was given.
            RedisError: it could not take the snapshot.
        """
        data = self._own_data("copied")
        if self.is_running and not self.is_frozen and not self._appends():
            self.call("SAVE", timeout=self._deadline)
        copy = Path(tempfile.mkdtemp(prefix="copy-", dir=data.parent))
        with self._held():
            # Of what a child of the server's is still writing nothing is read back after a crash.
            half_written = shutil.ignore_patterns("temp-*")
            shutil.copytree(data, copy, ignore=half_written, dirs_exist_ok=True)
        return copy

    def restore_copy(self, copy: Path, *, wait: bool = True) -> None:
        """End it (SIGKILL) and start it on a copy: what was written since has never been.

        Args:
            copy: of `save_copy`, of this server or of another one with the same settings; it may
                be used again.
            wait: as in `start`.

        Raises:
            UsageError: the server was given.
            RedisUnavailable: it was not healthy by the deadline.
        """
        data = self._own_data("restored")
        self.kill()
        shutil.rmtree(data)
        shutil.copytree(copy, data)
        self.start(wait=wait)

    def _trouble(self, what: str) -> RinkError:
        return super()._trouble(f"{what} (to PING it said last: {self._said})")

    def _own_data(self, done: str) -> Path:
        if self._data is None:
            raise UsageError(f"{self} cannot be {done}: it was not started here, or is a Sentinel")
        return self._data

    def _appends(self) -> bool:
        return self.info("persistence")["aof_enabled"] == "1"

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Keep it from writing meanwhile."""
        if self.is_frozen or not self.is_running:
            yield
            return
        self._process.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.signal(signal.SIGCONT)


def fields(text: Reply) -> dict[str, str]:
    """Return what INFO and CLUSTER INFO answer, by its names."""
    pairs = (line.split(":", 1) for line in str(text).splitlines() if ":" in line)
    return {name: value.strip() for name, value in pairs}

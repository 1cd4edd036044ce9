"""Run an etcd on this machine while the command runs: `rink dev`."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import click

from rink.cli.exit_status import wrapped
from rink.cli.options import until_ended
from rink.errors import ConfigError, EtcdUnavailable
from rink.etcd.client import Client
from rink.etcd.server_versions import DEV_NAME, fixed_in
from rink.pip_distribution import install_command

PORT = 2379
"""The port that a Session uses if none is set, so a program needs no setting."""

LOOK_INTERVAL_S = 0.5


@click.command(short_help="Run an etcd on this machine, for development.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 picks a free one.  [default: 2379, or a free one if that is taken]",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory that keeps the data. Without it, the data is deleted when the server ends.",
)
@click.option("--json", "as_json", is_flag=True, help="Write the address as one line of JSON.")
def dev(port: int | None, data_dir: Path | None, as_json: bool) -> None:
    """Run an etcd on this machine until Ctrl-C.

    It is for development, never for production.
    """
    with until_ended():
        run(port, data_dir, as_json=as_json)


def run(port: int | None, data_dir: Path | None, *, as_json: bool) -> None:
    """Run etcd until the caller is interrupted.

    Raises:
        ConfigError: the port is taken, the folder cannot be used, or there is no etcd.
        EtcdUnavailable: etcd did not start, or ended by itself.
    """
    # Only this command needs these modules.
    from rink.testing import local_etcd
    from rink.testing.process.server import NoEtcdError

    os.environ.pop("RINK_TEST_ETCD", None)  # so that `rink.testing` starts a server
    chosen = _choose(port)
    url = f"http://127.0.0.1:{chosen}"
    arguments = (
        # etcd takes the last of two equal options. The folder's own port is for tests, which need
        # different ports.
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        "--auto-compaction-retention=1",  # hours
        f"--name={DEV_NAME}",  # by this name, clients know that they need not warn
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(_without_warnings())
        try:
            server = local_etcd(data_dir=data_dir, fsync=data_dir is not None, extra_args=arguments)
            node = stack.enter_context(server)
        except NoEtcdError as error:
            # That error has advice for tests, for example to use an etcd that already runs.
            command = install_command("testing")
            text = f"there is no `etcd` on the PATH: install it with `{command}`"
            raise ConfigError(text) from error
        except OSError as error:
            raise ConfigError(f"{error.filename or data_dir}: {error.strerror}") from error
        stack.callback(node.stop)  # a clean stop, since the data may be used again
        version = version_of(url)
        if as_json:
            _tell(url, version, data_dir)
        else:
            if port is None and chosen != PORT:
                others = "so etcd listens at another port: use the URL below in the examples."
                click.echo(f"Port {PORT} is taken, {others}")
            _greet(url, version, data_dir)
        never = threading.Event()
        while not never.wait(LOOK_INTERVAL_S):
            if not node.is_running:
                text = f"etcd has ended by itself. The end of its log:\n{node.log_tail()}"
                raise EtcdUnavailable(text, endpoints=[url])


def version_of(url: str) -> str:
    """Ask a server for its version."""
    with contextlib.closing(Client([url])) as client:
        return client.version()


def _tell(url: str, version: str, data_dir: Path | None) -> None:
    facts = {
        "endpoint": url,
        "version": version,
        "fixed_in": fixed_in(version) or None,
        "data_dir": str(data_dir) if data_dir else None,
    }
    click.echo(json.dumps(facts))  # it flushes


def _greet(url: str, version: str, data_dir: Path | None) -> None:
    data = "Its data is deleted when it ends; --data-dir keeps it."
    if data_dir:
        data = f"Its data stays in {data_dir}."
    lines = [
        f"etcd {version} runs at {url}, for development only: one server, no password, no TLS."
    ]
    if fixed := fixed_in(version):
        lines.append(f"etcd {version} has known faults: in production use {fixed} or later.")
    lines.append(f"{data} Ctrl-C ends it. In another terminal:")
    for line in lines:
        click.echo(wrapped(line, sys.stdout))
    click.echo(f"\n    export RINK_ETCD={url}\n")


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppress warnings about the etcd, since the greeting says the same."""
    log = logging.getLogger("rink.testing")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _choose(port: int | None) -> int:
    """Return the given port, or else the usual port or any free port.

    Raises:
        ConfigError: the given port is taken.
    """
    if port:
        if not _is_free(port):
            raise ConfigError(f"port {port} of 127.0.0.1 is taken; --port 0 takes a free one")
        return port
    if port is None and _is_free(PORT):
        return PORT
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free: int = probe.getsockname()[1]
        return free


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True

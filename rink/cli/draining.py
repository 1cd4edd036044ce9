"""Make the sidecar in the same pod leave: `rink drain`."""

from __future__ import annotations

import socket
from pathlib import Path

import click

from rink.cli.exit_status import NO, Failed

API = "127.0.0.1:8181"

CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 2.0
"""Seconds for the answer, in addition to `--wait`."""


@click.command(short_help="Make the sidecar in the same pod leave, as a preStop hook.")
@click.option(
    "--api",
    default=API,
    metavar="ADDRESS",
    envvar="RINK_API",
    help="Where the sidecar's API is: HOST:PORT, or unix:PATH.",
)
@click.option(
    "--bearer",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The file with the API's token.",
)
@click.option(
    "--wait",
    default=0.0,
    metavar="SECONDS",
    type=click.FloatRange(min=0, max=3600),
    help="How long to wait until the sidecar has left.",
)
@click.pass_context
def drain(ctx: click.Context, api: str, bearer: Path | None, wait: float) -> None:  # fmt: skip
    """Make the sidecar in the same pod leave for good. It may be repeated.

    With --wait 0, exits with 0 at once. Otherwise exits with 0 once the sidecar has left, and with
    3 if it is still leaving after that time.
    """
    status, body = _post(f"/v1/drain?wait={wait:g}", api, bearer, wait + ANSWER_TIMEOUT_S)
    if status not in (200, 202):
        raise Failed(f"the sidecar at {api} answered {status}: {body}")
    if status == 202 and wait:
        click.echo(f"rink: the sidecar at {api} is still leaving after {wait:g} s", err=True)
        ctx.exit(NO)


def _post(path: str, api: str, bearer: Path | None, timeout_s: float) -> tuple[int, str]:
    """Send a POST without a body, and return the answer's status and body.

    Importing http.client would take most of the command's time.
    """
    authorization = f"Authorization: Bearer {_token(bearer)}\r\n" if bearer else ""
    host = "localhost" if api.startswith(("unix:", "/")) else api
    head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n"
    answer = b""
    try:
        with _connect(api) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(f"{head}{authorization}\r\n".encode())
            while chunk := connection.recv(65_536):
                answer += chunk
    except OSError as error:
        raise Failed(f"no sidecar answers at {api}: {error.strerror or error}") from error
    first, _, body = answer.partition(b"\r\n\r\n")
    try:
        return int(first.split(b" ", 2)[1]), body.decode(errors="replace").strip()
    except (IndexError, ValueError):
        raise Failed(f"the server at {api} is no sidecar") from None


def _connect(api: str) -> socket.socket:
    if api.startswith(("unix:", "/")):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(CONNECT_TIMEOUT_S)
        connection.connect(api.removeprefix("unix:"))
        return connection
    host, _, port = api.rpartition(":")
    if not port.isdigit() or int(port) > 65_535:
        raise click.BadParameter(f"{api!r} is no address: give HOST:PORT, or unix:PATH")
    return socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S)


def _token(bearer: Path) -> str:
    try:
        return bearer.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise Failed(f"cannot read the token file {bearer}: {error.strerror}") from error

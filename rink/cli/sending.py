"""Send records from JSON into a stream: `rink send` and `rink sendmany`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

import attrs
import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from rink.cli import apps
from rink.cli.exit_status import Failed
from rink.cli.options import Seconds, with_json
from rink.errors import RinkError
from rink.plural import plural

if TYPE_CHECKING:
    from rink.streams import App, Stream

_CHUNK_BYTES = 1 << 18
"""The number of bytes that are read and sent together: some thousand small records."""

_timeout = click.option(
    "--timeout",
    type=Seconds(min=0, min_open=True),
    default=30.0,
    help="Seconds to wait for room in a partition, or for Redis while it is unavailable.",
)


@click.command(short_help="Send one record to a stream.")
@apps.with_app
@click.argument("stream")
@click.argument("record")
@_timeout
@with_json
def send(app: str, stream: str, record: str, timeout: float, as_json: bool) -> None:
    """Send RECORD, a JSON object, to STREAM of the app that MODULE:ATTR names."""
    loaded_app = apps.load(app)
    target = apps.stream_of(loaded_app, stream)
    value = target.record_of(record.encode())
    number = target.partition_of(value)
    event_id = apps.run(loaded_app, lambda: _send(loaded_app, target, value, timeout))
    if as_json:
        click.echo(json.dumps({"stream": stream, "partition": number, "id": event_id}))
    else:
        click.echo(f"{event_id} in partition {number} of {stream}")


async def _send(app: App, stream: Stream[Any], value: Any, timeout: float) -> str:
    with apps.asking(app):
        # The first send of an app waits for Redis. `open` fails at once without Redis.
        await app.connections.open()
    return await stream.send(value, timeout=timeout)


@attrs.define
class _Count:
    """Count the progress of `sendmany`; `--json` writes it.

    Some of the `unsure` records after the `sent` ones may have been sent, too.
    """

    stream: str
    file: str
    lines: int = 0
    sent: int = 0
    unsure: int = 0
    seconds: float = 0.0
    line: int | None = None
    error: str | None = None


@click.command(short_help="Send the records of a file, one JSON object a line.")
@apps.with_app
@click.argument("stream")
@click.option(
    "--file",
    type=click.File("rb"),
    required=True,
    help="One JSON object a line; - is standard input, sent as it comes.",
)
@_timeout
@click.option("--json", "as_json", is_flag=True, help="Write the counts as JSON, for programs.")
def sendmany(app: str, stream: str, file: BinaryIO, timeout: float, as_json: bool) -> None:
    """Send the records of a file to STREAM of the app that MODULE:ATTR names.

    They are sent in the order of the lines. Empty lines are skipped. The command ends at the first
    line that cannot be sent. The lines before it have been sent then.
    """
    loaded_app = apps.load(app)
    target = apps.stream_of(loaded_app, stream)
    name = str(getattr(file, "name", "<stdin>"))
    count = _Count(stream, "-" if name == "<stdin>" else name)
    began = time.monotonic()
    try:
        with _progress_bar(file) as show:
            apps.run(loaded_app, lambda: _send_all(loaded_app, target, file, count, timeout, show))
    except (RinkError, KeyboardInterrupt) as error:
        count.error = str(error) or "interrupted"
        raise Failed(_failure_text(count, count.error)) from error
    finally:
        count.seconds = round(time.monotonic() - began, 3)
        if as_json:
            click.echo(json.dumps(attrs.asdict(count)))
    if not as_json:
        rate = count.sent / max(count.seconds, 0.001)
        click.echo(
            f"{count.sent} {plural(count.sent, 'record')} sent to {stream} in "
            f"{count.seconds:.1f} s ({rate:.0f} a second)"
        )


def _failure_text(count: _Count, error: str) -> str:
    if count.line is None:
        some = f", and maybe some of the next {count.unsure}" if count.unsure else ""
        return f"{error}. Records sent from {count.file}: the first {count.sent}{some}"
    return f"line {count.line} of {count.file}: {error}. Records sent before it: {count.sent}"


async def _send_all(
    app: App,
    stream: Stream[Any],
    file: BinaryIO,
    count: _Count,
    timeout: float,
    show: Callable[[int, int], object],
) -> None:
    rest = b""
    with apps.asking(app):
        await app.connections.open()  # fails at once without Redis, as in `_send`
    while chunk := await _read(file):
        *lines, rest = (rest + chunk).split(b"\n")
        await _send_lines(stream, lines, count, timeout)
        show(len(chunk), count.sent)
    await _send_lines(stream, [rest] if rest else [], count, timeout)


async def _send_lines(
    stream: Stream[Any], lines: list[bytes], count: _Count, timeout: float
) -> None:
    records, bad = _records(stream, lines, count)
    count.unsure = len(records)
    count.sent += await stream.send_many(records, timeout=timeout)
    count.unsure = 0
    if bad is not None:
        count.line = count.lines
        raise bad


def _records(
    stream: Stream[Any], lines: list[bytes], count: _Count
) -> tuple[list[Any], RinkError | None]:
    """Return the records up to the first invalid line, and that line's error."""
    records: list[Any] = []
    for line in lines:
        count.lines += 1
        if not line.strip():
            continue
        try:
            record = stream.record_of(line)
            stream.partition_of(record)
        except RinkError as error:
            return records, error
        records.append(record)
    return records, None


async def _read(file: BinaryIO) -> bytes:
    """Return the next piece of a file; b"" is the end.

    The event loop waits for a pipe or a terminal. So records are sent as soon as they arrive, and
    Ctrl-C works.
    """
    if not _is_waited_for(file):
        return file.read(_CHUNK_BYTES)
    loop, fd, readable = asyncio.get_running_loop(), file.fileno(), asyncio.Event()
    was_blocking = os.get_blocking(fd)
    loop.add_reader(fd, readable.set)
    try:
        while True:
            await readable.wait()
            readable.clear()
            os.set_blocking(fd, False)  # another process may have read the data
            with contextlib.suppress(BlockingIOError):
                return os.read(fd, _CHUNK_BYTES)
    finally:
        loop.remove_reader(fd)
        os.set_blocking(fd, was_blocking)  # the shell uses the same terminal


def _is_waited_for(file: BinaryIO) -> bool:
    try:
        mode = os.fstat(file.fileno()).st_mode
    except OSError:  # a test's file, in memory
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or file.isatty()


@contextlib.contextmanager
def _progress_bar(file: BinaryIO) -> Iterator[Callable[[int, int], object]]:
    """Show a progress bar on stderr, if stderr is a terminal.

    Yield a function that takes the bytes of a step, and the number of records sent so far.
    """
    console = Console(stderr=True)
    with Progress(
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[sent]} records"),
        TimeElapsedColumn(),
        console=console,
        disable=not sys.stderr.isatty(),
        transient=True,
    ) as progress:
        task = progress.add_task("", total=_file_size(file), sent=0)
        yield lambda size, sent: progress.update(task, advance=size, sent=sent)


def _file_size(file: BinaryIO) -> int | None:
    try:
        status = os.fstat(file.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None

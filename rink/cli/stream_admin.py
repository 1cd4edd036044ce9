"""Administer an app's streams by `rink.streams.admin`: `rink streams …`."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click
from rich.console import RenderableType

from rink.cli import apps, render, render_streams
from rink.cli.exit_status import Failed
from rink.cli.options import with_json

if TYPE_CHECKING:
    from rink.streams import App

T = TypeVar("T")

_PROCESSOR = click.option("--processor", "-p", metavar="NAME", help="Only this processor.")
_STREAM = click.option("--stream", "-s", metavar="NAME", help="Only this stream.")
_PARTITION = click.option(
    "--partition", "-n", type=click.IntRange(min=0), metavar="N", help="Only this partition."
)
_LETTER = click.argument("letter", required=False, metavar="[ID]")
_ALL = click.option("--all", "takes_all", is_flag=True, help="All chosen dead letters.")
_YES = click.option("--yes", is_flag=True, help="Do not ask.")


@click.group(short_help="Administer the streams of an app.")
def streams() -> None:
    """Administer the streams of an app: lag, owners, dead letters, offsets.

    Each command takes the app as MODULE:ATTR, as `rink worker` does. It may run while workers run.
    """


def _with_app(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the app, and the module `rink.streams.admin`."""

    @functools.wraps(function)
    def loaded(*, app: str, **named: Any) -> Any:
        loaded_app = apps.load(app)  # this names a missing extra
        from rink.streams import admin

        return function(loaded_app, admin, **named)

    return apps.with_app(loaded)


def _chosen(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the app, the options that choose partitions, and --json."""
    for option in (with_json, _PARTITION, _STREAM, _PROCESSOR, _with_app):
        function = option(function)
    return function


def _of_processor(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the app, a processor, and options for its partitions."""
    for option in (with_json, _PARTITION, _STREAM, click.argument("processor"), _with_app):
        function = option(function)
    return function


def _ask(app: App, work: Callable[[], Awaitable[T]], *, etcd: bool = False) -> T:
    with apps.asking(app, etcd=etcd):
        return apps.run(app, work)


def _run_and_show(
    app: App,
    work: Callable[[], Awaitable[Sequence[Any]]],
    key: str,
    show: Callable[[Any], RenderableType | str],
    as_json: bool,
    *,
    etcd: bool = False,
) -> None:
    """Run the work, and write its result for a program or for people.

    `etcd` means that the work reads etcd in addition to Redis.
    """
    rows = _ask(app, work, etcd=etcd)
    if as_json:
        click.echo(json.dumps({key: [attrs.asdict(row) for row in rows]}, indent=2))
        return
    shown = show(rows)
    if isinstance(shown, str):
        click.echo(render.clean(shown))
    else:
        render.console().print(shown)


@streams.command(short_help="Show the lag of each processor, and what holds trimming back.")
@_chosen
def lag(app: App, admin: ModuleType, as_json: bool, **chosen: Any) -> None:
    """Show the lag of each processor, and what holds trimming back.

    Processors that Redis knows but the app does not have are shown, too.
    """
    work = partial(admin.lag, app, **chosen)
    _run_and_show(app, work, "lag", render_streams.show_lag, as_json)


@streams.command(short_help="Show the owner and the standby of each partition.")
@_chosen
def owners(app: App, admin: ModuleType, as_json: bool, **chosen: Any) -> None:
    """Show the owner of each partition, and the worker that would be next."""
    work = partial(admin.owners, app, **chosen)
    _run_and_show(app, work, "owners", render_streams.show_owners, as_json, etcd=True)


@streams.command(short_help="List the dead letters, or show a dead letter in full.")
@_chosen
@_LETTER
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=20,
    help="Show this many of the newest dead letters.",
)
def dead(
    app: App, admin: ModuleType, letter: str | None, last: int, as_json: bool, **chosen: Any
) -> None:
    """List the dead letters, or show the dead letter ID with its traceback."""
    if letter is not None:
        result = _ask(app, partial(admin.dead_letter, app, letter, **chosen))
        show: Callable[[Any], RenderableType] = render_streams.show_letter
    else:
        result = _ask(app, partial(admin.dead_letters, app, last=last, **chosen))
        show = render_streams.show_letters
    if as_json:
        click.echo(json.dumps(attrs.asdict(result), indent=2))
    else:
        render.console().print(show(result))


@streams.command(short_help="Make dead letters events again.")
@_chosen
@_LETTER
@_ALL
def requeue(
    app: App, admin: ModuleType, letter: str | None, takes_all: bool, as_json: bool, **chosen: Any
) -> None:
    """Make the dead letter ID, or all chosen dead letters, events again.

    Each event goes to the end of its partition. Only the processor that gave it up gets it.
    """
    _check_choice(letter, takes_all)
    work = partial(admin.requeue, app, letter, **chosen)
    _run_and_show(app, work, "requeued", render_streams.show_requeued, as_json)


@streams.command(short_help="Remove dead letters for good.")
@_chosen
@_LETTER
@_ALL
@_YES
def discard(
    app: App,
    admin: ModuleType,
    letter: str | None,
    takes_all: bool,
    yes: bool,
    as_json: bool,
    **chosen: Any,
) -> None:
    """Remove the dead letter ID, or all chosen dead letters, for good."""
    _check_choice(letter, takes_all)
    if takes_all and not yes:
        _confirm(
            app,
            partial(admin.dead_letters, app, **chosen),
            render_streams.show_letters,
            "Remove all chosen dead letters, for good?",
            "discard asks before it removes all chosen dead letters",
        )
    work = partial(admin.discard, app, letter, **chosen)
    _run_and_show(app, work, "discarded", render_streams.show_discarded, as_json)


@streams.command(short_help="Process quarantined partitions again.")
@_chosen
@click.option(
    "--skip",
    is_flag=True,
    help="Skip the event that quarantined the partition: it becomes a dead letter.",
)
def unquarantine(app: App, admin: ModuleType, skip: bool, as_json: bool, **chosen: Any) -> None:
    """Process all quarantined partitions again, or the chosen ones."""
    work = partial(admin.unquarantine, app, skip=skip, **chosen)
    _run_and_show(app, work, "unquarantined", render_streams.show_unquarantined, as_json)


@streams.command(short_help="Pause a processor; its partitions keep their owners.")
@_of_processor
def pause(app: App, admin: ModuleType, processor: str, as_json: bool, **where: Any) -> None:
    """Pause PROCESSOR, in all partitions or in one.

    It gets no events until `resume`. Workers notice within about two seconds, and finish their
    in-flight events. A restart does not end the pause.
    """
    work = partial(admin.pause, app, processor, **where)
    _run_and_show(app, work, "paused", render_streams.show_paused, as_json)


@streams.command(short_help="Resume a paused processor.")
@_of_processor
def resume(app: App, admin: ModuleType, processor: str, as_json: bool, **where: Any) -> None:
    """Resume PROCESSOR, in all its paused partitions or in one."""
    work = partial(admin.resume, app, processor, **where)
    _run_and_show(app, work, "resumed", render_streams.show_resumed, as_json)


@streams.command("forget-group", short_help="Forget a retired processor, so that trimming goes on.")
@_with_app
@click.argument("processor")
@_STREAM
@click.option(
    "--force",
    is_flag=True,
    help=(
        "Forget it even while its workers run. The next commit of an owner then quarantines its "
        "partition."
    ),
)
@_YES
@with_json
def forget_group(
    app: App, admin: ModuleType, processor: str, force: bool, yes: bool, as_json: bool, **where: Any
) -> None:
    """Forget a retired PROCESSOR, so that trimming does not wait for it.

    Its offsets are deleted, its dead letters stay. The command asks first if the app still has
    that processor.
    """
    if processor in app.processors and not yes:
        _confirm(
            app,
            partial(admin.lag, app, processor=processor, **where),
            render_streams.show_lag,
            f"This app still has {processor}. Forget its offsets, as shown above?",
            f"forget-group asks before it forgets {processor}, which the app still has",
        )
    work = partial(admin.forget_group, app, processor, force=force, **where)
    _run_and_show(app, work, "forgotten", render_streams.show_forgotten, as_json)


@streams.command(short_help="Move the offset of a processor.")
@_with_app
@click.argument("processor")
@click.option(
    "--to",
    required=True,
    metavar="WHERE",
    help="earliest, latest, an event's id (it goes on after that event), or a time (it goes on "
    "from that time): 2026-11-27T00:00 in UTC, 2026-11-27T00:00+02:00, or milliseconds since 1970.",
)
@_STREAM
@_PARTITION
@_YES
@with_json
def reset(
    app: App, admin: ModuleType, processor: str, to: str, yes: bool, as_json: bool, **where: Any
) -> None:
    """Move the offset of PROCESSOR, in all partitions or in one.

    Backwards, events are processed again. Forwards, skipped events are never processed.
    Quarantined partitions are processed again.
    """
    if not yes:
        _confirm(
            app,
            partial(admin.lag, app, processor=processor, **where),
            render_streams.show_lag,
            f"Move the offset of {processor} as shown above, to {to}?",
            "reset asks before it moves offsets",
        )
    work = partial(admin.reset, app, processor, to, **where)
    _run_and_show(app, work, "moved", render_streams.show_moved, as_json)


def _check_choice(letter: str | None, takes_all: bool) -> None:
    if (letter is None) != takes_all:
        raise click.UsageError("Give either the ID of a dead letter or --all.")


def _confirm(
    app: App,
    look: Callable[[], Awaitable[Any]],
    show: Callable[[Any], RenderableType],
    question: str,
    why: str,
) -> None:
    """Show the current state, and ask. Without a terminal, require --yes."""
    if not sys.stdin.isatty():
        raise Failed(f"{why}: without a terminal, add --yes")
    render.console(stderr=True).print(show(_ask(app, look)))
    click.confirm(question, abort=True, err=True)

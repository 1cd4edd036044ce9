"""`rink streams …`: what an operator sees and does of an app's streams. `rink.streams.admin` does it."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click
from rich.console import RenderableType

from rink.cli import apps, render, render_streams
from rink.cli.exit_status import Failed

if TYPE_CHECKING:
    from rink.streams import App

T = TypeVar("T")

_PROCESSOR = click.option("--processor", "-p", metavar="NAME", help="Only this processor.")
_STREAM = click.option("--stream", "-s", metavar="NAME", help="Only this stream.")
_PARTITION = click.option(
    "--partition", "-n", type=click.IntRange(min=0), metavar="N", help="Only this partition."
)
_LETTER = click.argument("letter", required=False, metavar="[ID]")
_ALL = click.option("--all", "takes_all", is_flag=True, help="All dead letters of what is chosen.")
_YES = click.option("--yes", is_flag=True, help="Do not ask.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")


@click.group(short_help="Look after the streams of an app.")
def streams() -> None:
    """Look after the streams of an app: lag, owners, dead letters, offsets.

    Each command takes the app as MODULE:ATTR, as `rink worker` does, and may be run while workers run.
    """


def _chosen(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the app, the options that say which partitions are meant, and --json."""

    @functools.wraps(function)
    def loaded(*given: Any, app: str, **named: Any) -> Any:
        return function(*given, app=apps.load(app), **named)

    for option in (_JSON, _PARTITION, _STREAM, _PROCESSOR, apps.with_app):
        loaded = option(loaded)
    return loaded


def _ask(app: App, work: Callable[[], Awaitable[T]], *, etcd: bool = False) -> T:
    """Run the work, and say on stderr what is asked if no answer comes soon."""
    with apps.asking(app, etcd=etcd):
        return apps.run(app, work)


def _tell(
    app: App,
    work: Callable[[], Awaitable[Sequence[Any]]],
    key: str,
    show: Callable[[Any], RenderableType | str],
    *,
    as_json: bool,
    etcd: bool = False,
) -> None:
    """Do it, and write what came of it for a program or for people.

    `etcd` means that etcd is asked as well as Redis.
    """
    found = _ask(app, work, etcd=etcd)
    if as_json:
        click.echo(json.dumps({key: [attrs.asdict(one) for one in found]}, indent=2))
        return
    shown = show(found)
    if isinstance(shown, str):
        click.echo(render.clean(shown))
    else:
        render.console().print(shown)


@streams.command(short_help="How far each processor is behind, and who holds trimming back.")
@_chosen
def lag(app: App, as_json: bool, **chosen: Any) -> None:
    """Show how far each processor is behind, and who holds trimming back.

    Processors that Redis knows and the app does not have are shown, too.
    """
    from rink.streams import admin

    _tell(app, lambda: admin.lag(app, **chosen), "lag", render_streams.show_lag, as_json=as_json)


@streams.command(short_help="Which worker has each partition, and which stands by.")
@_chosen
def owners(app: App, as_json: bool, **chosen: Any) -> None:
    """Show which worker has each partition, and which would take it over."""
    from rink.streams import admin

    show = render_streams.show_owners
    _tell(app, lambda: admin.owners(app, **chosen), "owners", show, as_json=as_json, etcd=True)


@streams.command(short_help="The dead letters, or one of them in full.")
@_chosen
@_LETTER
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="How many letters, the newest ones.",
)
def dead(app: App, letter: str | None, last: int, as_json: bool, **chosen: Any) -> None:
    """List the dead letters, or show the one with this ID in full, its traceback included."""
    from rink.streams import admin

    if letter is not None:
        one = _ask(app, lambda: admin.dead_letter(app, letter, **chosen))
        if as_json:
            click.echo(json.dumps(attrs.asdict(one), indent=2))
        else:
            render.console().print(render_streams.show_letter(one))
        return
    found = _ask(app, lambda: admin.dead_letters(app, last=last, **chosen))
    if as_json:
        click.echo(json.dumps(attrs.asdict(found), indent=2))
    else:
        render.console().print(render_streams.show_letters(found))


@streams.command(short_help="Make dead letters events again.")
@_chosen
@_LETTER
@_ALL
def requeue(app: App, letter: str | None, takes_all: bool, as_json: bool, **chosen: Any) -> None:
    """Make the dead letter with this ID, or all that are chosen, events again.

    Each comes at the end of its partition, for the processor alone that had given it up.
    """
    from rink.streams import admin

    _check_choice(letter, takes_all)
    show = render_streams.show_requeued
    _tell(app, lambda: admin.requeue(app, letter, **chosen), "requeued", show, as_json=as_json)


@streams.command(short_help="Remove dead letters for good.")
@_chosen
@_LETTER
@_ALL
@_YES
def discard(
    app: App, letter: str | None, takes_all: bool, yes: bool, as_json: bool, **chosen: Any
) -> None:
    """Remove the dead letter with this ID, or all that are chosen, for good."""
    from rink.streams import admin

    _check_choice(letter, takes_all)
    if takes_all and not yes:
        _confirm(
            app,
            lambda: admin.dead_letters(app, **chosen),
            render_streams.show_letters,
            "Remove all dead letters of these, for good?",
            "discard asks before it removes them all",
        )
    show = render_streams.show_discarded
    _tell(app, lambda: admin.discard(app, letter, **chosen), "discarded", show, as_json=as_json)


@streams.command(short_help="Have quarantined partitions processed again.")
@_chosen
@click.option(
    "--skip",
    is_flag=True,
    help="Pass over the event that the partition was quarantined for: it becomes a dead letter.",
)
def unquarantine(app: App, skip: bool, as_json: bool, **chosen: Any) -> None:
    """Have quarantined partitions processed again: all or the chosen ones."""
    from rink.streams import admin

    show = render_streams.show_unquarantined
    _tell(
        app,
        lambda: admin.unquarantine(app, skip=skip, **chosen),
        "unquarantined",
        show,
        as_json=as_json,
    )


def _of_processor(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the app, a processor, and options for its partitions."""
    for option in (_JSON, _PARTITION, _STREAM, click.argument("processor"), apps.with_app):
        function = option(function)
    return function


@streams.command(short_help="Pause a processor; its partitions keep their owners.")
@_of_processor
def pause(
    app: str, processor: str, stream: str | None, partition: int | None, as_json: bool
) -> None:
    """Pause PROCESSOR, in all partitions or in one.

    It gets no events until `resume`. Workers notice within about two seconds, and finish their
    in-flight events. A restart does not end the pause.
    """
    found = apps.load(app)
    from rink.streams import admin

    _tell(
        found,
        lambda: admin.pause(found, processor, stream=stream, partition=partition),
        "paused",
        render_streams.show_paused,
        as_json=as_json,
    )


@streams.command(short_help="Have a paused processor go on.")
@_of_processor
def resume(
    app: str, processor: str, stream: str | None, partition: int | None, as_json: bool
) -> None:
    """Resume PROCESSOR, in all partitions in which it is paused or in one."""
    found = apps.load(app)
    from rink.streams import admin

    _tell(
        found,
        lambda: admin.resume(found, processor, stream=stream, partition=partition),
        "resumed",
        render_streams.show_resumed,
        as_json=as_json,
    )


@streams.command("forget-group", short_help="Have trimming wait for a processor no longer.")
@apps.with_app
@click.argument("processor")
@_STREAM
@click.option(
    "--force",
    is_flag=True,
    help="Also while its workers run: their partitions are quarantined with the next commit.",
)
@_YES
@_JSON
def forget_group(
    app: str, processor: str, stream: str | None, force: bool, yes: bool, as_json: bool
) -> None:
    """Have trimming wait for PROCESSOR no longer: for one that was retired.

    Its offsets go, its dead letters stay. It asks where the app still has that processor.
    """
    found = apps.load(app)
    from rink.streams import admin

    if processor in found.processors and not yes:
        _confirm(
            found,
            lambda: admin.lag(found, processor=processor, stream=stream),
            render_streams.show_lag,
            f"This app still has {processor}. Forget its offsets, as shown above?",
            f"forget-group asks before it forgets {processor}, which the app still has",
        )
    _tell(
        found,
        lambda: admin.forget_group(found, processor, stream=stream, force=force),
        "forgotten",
        render_streams.show_forgotten,
        as_json=as_json,
    )


@streams.command(short_help="Move the offset of a processor.")
@apps.with_app
@click.argument("processor")
@click.option(
    "--to",
    required=True,
    metavar="WHERE",
    help="earliest, latest, an event's id (it goes on behind that), or a time (it goes on from then): "
    "2026-11-27T00:00 in UTC, 2026-11-27T00:00+02:00, or milliseconds since 1970.",
)
@_STREAM
@_PARTITION
@_YES
@_JSON
def reset(
    app: str,
    processor: str,
    to: str,
    stream: str | None,
    partition: int | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Move the offset of PROCESSOR, in all partitions or in one.

    Quarantined partitions are processed again.

    Backwards, events are processed again. Forwards, those passed over never are.
    """
    found = apps.load(app)
    from rink.streams import admin

    chosen: dict[str, Any] = {"stream": stream, "partition": partition}
    if not yes:
        _confirm(
            found,
            lambda: admin.lag(found, processor=processor, **chosen),
            render_streams.show_lag,
            f"Move the offset of {processor} as shown above, to {to}?",
            "reset asks before it moves offsets",
        )
    _tell(
        found,
        lambda: admin.reset(found, processor, to, **chosen),
        "moved",
        render_streams.show_moved,
        as_json=as_json,
    )


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
    """Show how it is now, and ask; who cannot be asked must say --yes."""
    if not sys.stdin.isatty():
        raise Failed(f"{why}: say --yes where there is no terminal")
    render.console(stderr=True).print(show(_ask(app, look)))
    click.confirm(question, abort=True, err=True)

"""The commands: `status`, `groups`, `history`, `watch` and `dev`; those of streams are added at the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from rink.changes import steps
from rink.cli import dev as development
from rink.cli import observe, render, watching
from rink.cli.options import Commands, Target, check_group, opened, until_ended, with_target
from rink.cli.planning import plan
from rink.cli.sending import send, sendmany
from rink.cli.streams import streams
from rink.cli.workers import worker
from rink.distribution import DISTRIBUTION
from rink.engine.follower import read_group
from rink.seen import seen

_JSON = click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name=DISTRIBUTION, prog_name="rink")
def commands() -> None:
    """Sticky, exclusive roles over etcd: look at groups, run workers of streams, and an etcd for development.

    status, groups, history, watch and plan only read: they join no group and write no key.
    """


@commands.command(short_help="How GROUP is now, and what keeps it from being settled.")
@click.argument("group", required=False, callback=check_group)
@_JSON
@with_target
def status(group: str | None, as_json: bool, target: Target) -> None:
    """Show GROUP as it is now: its version, ranks, members, and what keeps it from being settled.

    Without GROUP: list the groups, as `rink groups` does.
    """
    if group is None:
        _list_groups(target, as_json)
        return
    with opened(target) as etcd:
        view = read_group(etcd, target.keys(group))
    if observe.is_empty(view):
        raise target.unknown(group)
    now = seen(view, group)
    if as_json:
        _write({"prefix": target.prefix, **now.as_json()})
    else:
        render.console().print(render.show(now))


@commands.command()
@_JSON
@with_target
def groups(as_json: bool, target: Target) -> None:
    """List the groups under the prefix."""
    _list_groups(target, as_json)


def _list_groups(target: Target, as_json: bool) -> None:
    with opened(target) as etcd:
        found = observe.read_groups(etcd, target.prefix)
    every = [seen(view, group) for group, view in sorted(found.views.items())]
    if as_json:
        brief = [
            {
                "group": one.group,
                "version": one.version,
                "ranks": len(one.ranks),
                "members": len(one.members),
                "coordinator": one.coordinator,
                "settled": one.settled,
            }
            for one in every
        ]
        _write({"prefix": target.prefix, "revision": found.revision, "groups": brief,
                "strays": list(found.strays)})  # fmt: skip
    elif every or found.strays:
        render.console().print(render.show_groups(every, found.strays))
    else:
        click.echo(f"no groups: the etcd at {target.where} has no key under {target.prefix!r}")


@commands.command(short_help="The versions of GROUP: when, by whom, why, what changed.")
@click.argument("group", callback=check_group)
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="How many versions, the newest ones.",
)
@_JSON
@with_target
def history(group: str, last: int, as_json: bool, target: Target) -> None:
    """Show the versions of GROUP: when, by whom, why, and which rank went from whom to whom.

    etcd keeps the last hundred of them.
    """
    with opened(target) as etcd:
        view = read_group(etcd, target.keys(group))
    if observe.is_empty(view):
        raise target.unknown(group)
    found = steps(view)[-last:]
    if as_json:
        versions = [step.as_json() for step in found]
        _write({"group": group, "prefix": target.prefix, "revision": view.revision,
                "versions": versions})  # fmt: skip
    elif found:
        render.console().print(render.show_history(found))
    else:
        click.echo(f"group {group!r} has no version yet")


@commands.command(short_help="Follow GROUP until Ctrl-C.")
@click.argument("group", callback=check_group)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line for each event.")
@click.option("--wait", is_flag=True, help="Wait for a group that does not exist yet.")
@with_target
def watch(group: str, as_json: bool, wait: bool, target: Target) -> None:
    """Follow GROUP until Ctrl-C: what happens, above how it is now.

    Where the output is no terminal: one JSON object a line for each event, as with --json.
    """
    with opened(target) as etcd, until_ended():
        watching.watch(etcd, target, group, as_json=as_json, may_be_unknown=wait)


@commands.command(short_help="Run an etcd on this machine, for development.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Where it listens; 0 is any free port.  [default: 2379, or a free one if that is taken]",
)
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the data lies and stays; without it the data goes with the server.",
)
@click.option("--json", "as_json", is_flag=True, help="Say where it runs as one line of JSON.")
def dev(port: int | None, data_dir: Path | None, as_json: bool) -> None:
    """Run an etcd on this machine until Ctrl-C: for development, never for production."""
    with until_ended():
        development.run(port, data_dir, as_json=as_json)


def _write(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


for one in (plan, worker, send, sendmany, streams):
    commands.add_command(one)

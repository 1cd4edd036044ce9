"""Show the current state of groups: `rink status`, `groups` and `history`."""

from __future__ import annotations

import json
from typing import Any

import click

from rink.cli import observe, render
from rink.cli.exit_status import NO, Failed, Not, tell
from rink.cli.growth_estimate import growth
from rink.cli.holding_since import draining_since
from rink.cli.leases import Leases, read_leases
from rink.cli.options import Target, announced, check_group, opened, outside, with_json, with_target
from rink.inspect.group_status import GroupStatus, status_of_view
from rink.inspect.read_group import read_group
from rink.inspect.version_diff import steps


@click.command(short_help="Show GROUP as it is now, and why it is not settled.")
@click.argument("group", required=False, callback=check_group)
@click.option("--check", is_flag=True, help="Exit with 3 unless GROUP is settled and alive.")
@click.option(
    "--leases", "every_lease", is_flag=True, help="Read all leases, however many there are."
)
@with_json
@with_target
@click.pass_context
def status(
    ctx: click.Context,
    group: str | None,
    check: bool,
    every_lease: bool,
    as_json: bool,
    target: Target,
) -> None:
    """Show the version, ranks and members of GROUP, and why it is not settled.

    With --check, the exit status is 0 if GROUP is settled and every member renews its lease, and 3
    if not. Without GROUP, the command lists the groups, as `rink groups` does.
    """
    if group is None and check:
        raise click.UsageError("Say which GROUP to check.")
    if group is None:
        _list_groups(target, as_json)
        return
    with opened(target) as etcd:
        with target.reading(group):
            view = read_group(etcd, target.keys(group))
        if observe.is_empty(view) and check:
            raise Not(str(target.unknown(group)))
        if observe.is_empty(view):
            raise target.unknown(group)
        with announced(target, f"asking for the leases of group {group!r} at"):
            leases = read_leases(etcd, view, however_many=every_lease)
    wall = outside().clock.wall()
    now, since = status_of_view(view, group), draining_since(view)
    grows = growth(view, now, wall)
    if as_json:
        _write(
            {
                "prefix": target.prefix,
                **now.as_json(),
                "leases": leases.as_json(),
                "leases_problem": leases.problem,
                "draining_since": {name: value.as_json() for name, value in since.items()},
                "not_ranked": {name: value.as_json() for name, value in grows.items()},
            }
        )
    else:
        words = {name: f", {value.text(wall)}" for name, value in since.items()}
        render.console().print(render.show(now, leases=leases, since=words, growth=grows))
    if check:
        _answer(ctx, now, leases)


def _answer(ctx: click.Context, now: GroupStatus, leases: Leases) -> None:
    if not now.settled or leases.overdue:
        ctx.exit(NO)
    if leases.problem:
        raise Failed(f"cannot tell whether the members are alive: {leases.problem}")


@click.command(short_help="List the groups under the prefix that have members.")
@click.option("--all", "every", is_flag=True, help="Also list groups without members.")
@with_json
@with_target
def groups(every: bool, as_json: bool, target: Target) -> None:
    """List the groups under the prefix that have members."""
    _list_groups(target, as_json, every=every)


def _list_groups(target: Target, as_json: bool, *, every: bool = False) -> None:
    doing = f"reading the groups under {target.prefix!r} from"
    with opened(target) as etcd, announced(target, doing):
        groups_read = observe.read_groups(etcd, target.prefix)
    shown = {group: view for group, view in groups_read.views.items() if every or view.by_age}
    statuses = [status_of_view(view, group) for group, view in sorted(shown.items())]
    hidden = len(groups_read.views) - len(shown)
    if as_json:
        brief = [
            {
                "group": status.group,
                "version": status.version,
                "ranks": len(status.ranks),
                "members": len(status.members),
                "coordinator": status.coordinator,
                "settled": status.settled,
            }
            for status in statuses
        ]
        _write({"prefix": target.prefix, "revision": groups_read.revision, "groups": brief,
                "hidden": hidden, "strays": list(groups_read.strays)})  # fmt: skip
    elif groups_read.views or groups_read.strays:
        render.console().print(render.show_groups(statuses, hidden, groups_read.strays))
    else:
        tell(f"no groups: the etcd at {target.where} has no key under {target.prefix!r}")


@click.command(short_help="Show the versions of GROUP: time, author, cause, changes.")
@click.argument("group", callback=check_group)
@click.option(
    "--last", type=click.IntRange(min=1), default=20, help="Show this many of the newest versions."
)
@with_json
@with_target
def history(group: str, last: int, as_json: bool, target: Target) -> None:
    """Show the versions of GROUP: time, author, cause, and the moves of ranks.

    etcd keeps about the last hundred versions.
    """
    with opened(target) as etcd, target.reading(group):
        view = read_group(etcd, target.keys(group))
    if observe.is_empty(view):
        raise target.unknown(group)
    versions_shown = steps(view)[-last:]
    if as_json:
        versions = [step.as_json() for step in versions_shown]
        _write({"group": group, "prefix": target.prefix, "revision": view.revision,
                "versions": versions})  # fmt: skip
    elif versions_shown:
        render.console().print(render.show_history(versions_shown))
    else:
        tell(f"group {group!r} has no version yet")


def _write(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))

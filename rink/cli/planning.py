"""Show which roles would move when members leave and join: `rink plan`.

Spark takes seconds to start, so all checks that need no Spark come first.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from rink.cli import observe, render
from rink.cli.exit_status import Failed
from rink.cli.options import Target, check_group, opened, with_json, with_target
from rink.core.values import Version
from rink.core.wording import some
from rink.inspect.read_group import read_group
from rink.pip_distribution import install_command
from rink.plural import plural

if TYPE_CHECKING:
    from rink.spark.roles import Plan, Standing

NEEDED = {"pyspark", "py4j", "pyarrow", "numpy", "pandas"}
"""The modules of the extra `spark` that this command needs."""

MAX_FLOWS_SHOWN = 20


def _names(_: click.Context, __: click.Parameter, value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, tuple) else (value or "",)
    return tuple(name.strip() for text in values for name in text.split(",") if name.strip())


@click.command(short_help="Show which roles would move when members leave and join.")
@click.argument("group", required=False, callback=check_group)
@click.option(
    "--spark",
    "path",
    metavar="FILE",
    help=(
        "The file of the roles: .parquet (or a directory of Parquet files), .csv or .json. Spark "
        "reads it."
    ),
)
@click.option("--role-column", default="role", help="The column of the roles.")
@click.option(
    "--leave", multiple=True, callback=_names, metavar="NAME,…", help="Members that leave."
)
@click.option("--join", multiple=True, callback=_names, metavar="NAME,…", help="Members that join.")
@click.option(
    "--members",
    callback=_names,
    metavar="NAME,…",
    help="The members by rank, instead of GROUP. Needs no etcd.",
)
@click.option("--scheme", help="With --members: how roles map to ranks.  [default: jump]")
@click.option(
    "--master",
    help="Where Spark runs; sc://… is Spark Connect.  [default: SPARK_REMOTE, or local[*]]",
)
@click.option("--plot", metavar="FILE", help="Also draw the plan, as .svg, .png or .pdf.")
@with_json
@with_target
def plan(
    group: str | None,
    path: str | None,
    role_column: str,
    leave: tuple[str, ...],
    join: tuple[str, ...],
    members: tuple[str, ...],
    scheme: str | None,
    master: str | None,
    plot: str | None,
    as_json: bool,
    target: Target,
) -> None:
    """Show which roles would move when members of GROUP leave and join.

    The roles are in a file. The output shows how many move, between which members, and how even the
    load is before and after. The plan assumes that every delay of GROUP is over: waiting members
    have a rank, and members that are gone or leave have none. Nothing is written to etcd.
    """
    if path is None:
        raise click.UsageError(
            "etcd does not list the roles of a group: name them by --spark FILE, a Parquet, CSV or "
            "JSON file with one role a row"
        )
    if (group is None) is not bool(members):
        raise click.UsageError("name either a GROUP, or its members by --members w1,w2,…")
    if scheme is not None and not members:
        raise click.UsageError("--scheme goes with --members: a group has its own")
    with _needed(plot):
        if members:
            from rink.spark.roles import Standing

            version = Version(number=0, ranks=members, scheme=scheme or "jump")
            standing, title = Standing(version), ""
        else:
            assert group is not None  # checked above
            standing, title = _read(group, target)
        result = _compute(standing, title, path, role_column, leave, join, master, plot)
    if as_json:
        click.echo(
            json.dumps({"group": group, "file": path, **result.as_json(), "plot": plot}, indent=2)
        )
    else:
        render.console().print(show_plan(result, title))
        if plot:
            click.echo(f"drawn into {plot}")


def _read(group: str, target: Target) -> tuple[Standing, str]:
    with opened(target) as etcd, target.reading(group):
        # The import takes half a second, and it counts as time without an answer.
        from rink.spark.roles import Standing

        view = read_group(etcd, target.keys(group))
    if observe.is_empty(view):
        raise target.unknown(group)
    standing = Standing.of(view, group)
    return standing, f"{group}, version {standing.version.number}"


@contextlib.contextmanager
def _needed(plot: str | None) -> Iterator[None]:
    """Name the extra that installs a missing module."""
    if plot and importlib.util.find_spec("matplotlib") is None:
        raise Failed(f"--plot needs matplotlib: {install_command('plot')}")
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in NEEDED:
            raise
        raise Failed(f"`rink plan` needs {missing}: {install_command('spark')}") from error
    except ImportError as error:
        if error.name != "pyspark":
            raise
        raise Failed(str(error)) from error  # pyspark is too old


def _compute(
    standing: Standing,
    title: str,
    path: str,
    column: str,
    leave: tuple[str, ...],
    join: tuple[str, ...],
    master: str | None,
    plot: str | None,
) -> Plan:
    import pyspark  # noqa: F401 - fail early without it

    from rink.cli import plan_files, plan_picture
    from rink.spark.roles import plans, version_ranks

    # Check all arguments before Spark starts.
    version_ranks.RoleMap.of(version_ranks.after(standing, leave, join))
    plan_files.format_of(path)
    if plot:
        plan_picture.check_ending(plot)
    with _progress() as say:
        say("starting Spark", 0, 0)
        with plan_files.session(master) as spark:
            say(f"reading {path}", 0, 0)
            roles = plan_files.read(spark, path, column)
            with (
                plan_files.explain_spark_errors("Spark could not count the roles"),
                plan_files.watched(spark, lambda done, of: say("counting roles", done, of)),
            ):
                result = plans.plan(roles, column, standing, leave, join)
    if plot:
        plan_picture.draw(result, plot, title)
    return result


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(
        *columns,
        console=render.console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    ) as progress:
        task = progress.add_task("", total=None)

        def say(text: str, done: int, of: int) -> None:
            progress.update(task, description=render.clean(text), completed=done, total=of or None)
            progress.refresh()

        yield say


def show_plan(result: Plan, title: str = "") -> RenderableType:
    """Show a plan: its figures, the moves between members, and the balance."""
    head = Text(
        f"{result.moved:,} of {result.roles:,} {plural(result.roles, 'role')} would move", "bold"
    )
    head.append(f" ({result.share_moved:.2%})", "bold")
    rank_count = len(result.after.ranks)
    size = f"{len(result.before.ranks)} → {rank_count} {plural(rank_count, 'rank')}"
    facts = [render.clean(title)] if title else []
    facts += [size, result.after.scheme, some(result.after.because, "; ") or "nobody comes or goes"]
    lines: list[RenderableType] = [head, Text(render.clean(" · ".join(facts)), "dim")]
    if result.unnamed:
        lines.append(Text(f"rows without a role (null): {result.unnamed:,}", "yellow"))
    if result.flows:
        lines += [Text(""), _flows(result)]
    return Group(*lines, Text(""), _balance(result))


def _flows(result: Plan) -> RenderableType:
    listing = render.Listing(("from", "to", ">roles", ">of all moves"), titles=2)
    shown, hidden = result.flows[:MAX_FLOWS_SHOWN], result.flows[MAX_FLOWS_SHOWN:]
    for flow in shown:
        listing.add(
            _who(flow.source),
            _who(flow.target),
            f"{flow.roles:,}",
            f"{flow.roles / result.moved:.1%}",
        )
    if hidden:
        rest = sum(flow.roles for flow in hidden)
        more = Text(f"… and {len(hidden):,} more pairs", "dim")
        listing.add(more, "", f"{rest:,}", f"{rest / result.moved:.1%}")
    return listing


def _balance(result: Plan) -> RenderableType:
    columns = ("member", ">rank", ">roles before", ">after", ">of even before", ">of even after")
    listing = render.Listing(columns)
    before = {load.member: load for load in result.balance_before}
    after = {load.member: load for load in result.balance_after}
    for name in dict.fromkeys([*result.after.ranks, *result.before.ranks]):
        was, gets = before.get(name), after.get(name)
        old, new = ("-" if load is None else str(load.rank) for load in (was, gets))
        listing.add(
            _who(name),
            new if old == new else f"{old} → {new}",
            f"{was.roles:,}" if was else "-",
            f"{gets.roles:,}" if gets else "-",
            f"{was.ratio:.3f}" if was else "-",
            f"{gets.ratio:.3f}" if gets else "-",
        )
    return listing


def _who(name: str | None) -> Text:
    return Text("nobody", "dim") if name is None else Text(render.clean(name))

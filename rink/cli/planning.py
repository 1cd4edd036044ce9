"""`rink plan`: which of many roles would move when members leave and join. `rink.spark.roles` counts.

Of the group only the newest version and the records are read. All that can be wrong without Spark is
found before it is started, which takes seconds.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import attrs
import click
from rich.console import Group, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from rink.cli import observe, render
from rink.cli.exit_status import Failed
from rink.cli.options import Target, check_group, opened, with_target
from rink.core.own_record import some
from rink.core.values import Version
from rink.distribution import install_command
from rink.inspect.read_group import read_group

if TYPE_CHECKING:
    from rink.spark.roles import Plan, Standing

NEEDED = {"pyspark", "py4j", "pyarrow", "numpy", "pandas"}
"""What the extra `spark` brings, as far as it is needed here."""

FLOWS_SHOWN = 20


def _names(_: click.Context, __: click.Parameter, value: Any) -> tuple[str, ...]:
    """Names separated by commas, of one option or of several."""
    given = value if isinstance(value, tuple) else (value or "",)
    return tuple(name.strip() for one in given for name in one.split(",") if name.strip())


@attrs.frozen
class _Start:
    """What is planned from, and what is to be said of it."""

    standing: Standing
    title: str = ""


@click.command(short_help="Which of many roles would move when members leave and join.")
@click.argument("group", required=False, callback=check_group)
@click.option(
    "--spark",
    "path",
    metavar="FILE",
    help="The roles: .parquet (a directory of it too), .csv or .json, read by Spark.",
)
@click.option("--role-column", default="role", show_default=True, help="Where they stand in it.")
@click.option(
    "--leave", multiple=True, callback=_names, metavar="NAME,…", help="Members that leave."
)
@click.option("--join", multiple=True, callback=_names, metavar="NAME,…", help="Members that join.")
@click.option(
    "--members",
    callback=_names,
    metavar="NAME,…",
    help="In place of GROUP, without etcd: the members by rank.",
)
@click.option("--scheme", help="With --members: how roles map to ranks.  [default: jump]")
@click.option(
    "--master",
    help="Where Spark runs; sc://… is Spark Connect.  [default: SPARK_REMOTE, or local[*]]",
)
@click.option("--plot", metavar="FILE", help="Draw it, too: .svg, .png or .pdf.")
@click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")
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
    """Show which of the roles in a file would move when members of GROUP leave and join.

    How many, from whom to whom, and how evenly they lie before and after. It is the version that GROUP
    comes to when every delay is over: members that wait now are ranked then, and those that are gone or
    leave already have none. Nothing is written to etcd.
    """
    if path is None:
        raise click.UsageError(
            "etcd does not know which roles there are: name them by --spark FILE, one a row of a "
            "Parquet, CSV or JSON file"
        )
    if (group is None) is not bool(members):
        raise click.UsageError("name either a GROUP, or its members by --members w1,w2,…")
    if scheme is not None and not members:
        raise click.UsageError("--scheme goes with --members: a group has its own")
    with _needed(plot):
        if members:
            from rink.spark.roles import Standing

            start = _Start(Standing(Version(number=0, ranks=members, scheme=scheme or "jump")))
        else:
            assert group is not None  # the one or the other, as asked above
            start = _read(group, target)
        found = _compute(start, path, role_column, leave, join, master, plot)
    if as_json:
        click.echo(
            json.dumps({"group": group, "file": path, **found.as_json(), "plot": plot}, indent=2)
        )
    else:
        render.console().print(show(found, start.title))
        if plot:
            click.echo(f"drawn into {plot}")


def _read(group: str, target: Target) -> _Start:
    """The newest version, who waits for a rank, and who will lose one anyhow."""
    with opened(target) as etcd, target.reading(group):
        # The import takes half a second, which counts as time without an answer.
        from rink.spark.roles import Standing

        view = read_group(etcd, target.keys(group))
    if observe.is_empty(view):
        raise target.unknown(group)
    found = Standing.of(view, group)
    return _Start(found, f"{group}, version {found.version.number}")


@contextlib.contextmanager
def _needed(plot: str | None) -> Iterator[None]:
    """Say which extra brings what is missing."""
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
        raise Failed(str(error)) from error  # one that is too old


def _compute(
    start: _Start,
    path: str,
    column: str,
    leave: tuple[str, ...],
    join: tuple[str, ...],
    master: str | None,
    plot: str | None,
) -> Plan:
    import pyspark  # noqa: F401 - whether it is there is to be known first

    from rink.cli import plan_files, plan_picture
    from rink.spark.roles import plans, version_ranks

    # What can be wrong is found before Spark is started.
    version_ranks.RoleMap.of(version_ranks.after(start.standing, leave, join))
    plan_files.format_of(path)
    if plot:
        plan_picture.check_ending(plot)
    with _progress() as say:
        say("starting Spark", 0, 0)
        with plan_files.session(master) as spark:
            say(f"reading {path}", 0, 0)
            roles = plan_files.read(spark, path, column)
            with (
                plan_files.told("Spark could not count the roles"),
                plan_files.watched(spark, lambda done, of: say("counting roles", done, of)),
            ):
                found = plans.plan(roles, column, start.standing, leave, join)
    if plot:
        plan_picture.draw(found, plot, start.title)
    return found


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """Show the progress on a terminal until the result is shown."""
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


# ── how it is shown ──────────────────────────────────────────────────────────────────────────────


def show(found: Plan, title: str = "") -> RenderableType:
    """Show a plan: the figures, from whom to whom, and the balance."""
    head = Text(f"{found.moved:,} of {found.roles:,} roles would move", "bold")
    head.append(f" ({found.share_moved:.2%})", "bold")
    size = f"{len(found.before.ranks)} → {len(found.after.ranks)} ranks"
    facts = [render.clean(title)] if title else []
    facts += [size, found.after.scheme, some(found.after.because, "; ") or "nobody comes or goes"]
    lines: list[RenderableType] = [head, Text(render.clean(" · ".join(facts)), "dim")]
    if found.unnamed:
        lines.append(Text(f"{found.unnamed:,} rows have no role (null)", "yellow"))
    if found.flows:
        lines += [Text(""), _flows(found)]
    return Group(*lines, Text(""), _balance(found))


def _flows(found: Plan) -> RenderableType:
    made = render.Listing(("from", "to", ">roles", ">of all moves"), titles=2)
    shown, hidden = found.flows[:FLOWS_SHOWN], found.flows[FLOWS_SHOWN:]
    for flow in shown:
        made.add(
            _who(flow.source),
            _who(flow.target),
            f"{flow.roles:,}",
            f"{flow.roles / found.moved:.1%}",
        )
    if hidden:
        rest = sum(flow.roles for flow in hidden)
        more = Text(f"… and {len(hidden):,} more pairs", "dim")
        made.add(more, "", f"{rest:,}", f"{rest / found.moved:.1%}")
    return made


def _balance(found: Plan) -> RenderableType:
    columns = ("member", ">rank", ">roles before", ">after", ">of even before", ">of even after")
    made = render.Listing(columns)
    before = {load.member: load for load in found.balance_before}
    after = {load.member: load for load in found.balance_after}
    for name in dict.fromkeys([*found.after.ranks, *found.before.ranks]):
        was, gets = before.get(name), after.get(name)
        old, new = ("-" if one is None else str(one.rank) for one in (was, gets))
        made.add(
            _who(name),
            new if old == new else f"{old} → {new}",
            f"{was.roles:,}" if was else "-",
            f"{gets.roles:,}" if gets else "-",
            f"{was.ratio:.3f}" if was else "-",
            f"{gets.ratio:.3f}" if gets else "-",
        )
    return made


def _who(name: str | None) -> Text:
    return Text("nobody", "dim") if name is None else Text(render.clean(name))

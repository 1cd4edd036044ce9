"""Wait for a condition of a group, for scripts: `rink wait`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import attrs
import click

from rink.cli import observe, render
from rink.cli.exit_status import Not, say, tell
from rink.cli.observe import Trouble
from rink.cli.options import (
    Seconds,
    Target,
    check_group,
    check_role,
    opened,
    outside,
    with_target_but_timeout,
)
from rink.cli.role_owner import RoleSeen, roles_seen, why_no_version
from rink.core.view import View
from rink.errors import EtcdUnavailable
from rink.inspect.group_status import status_of_view
from rink.plural import plural

MIN_TIMEOUT_S = 1.0
"""The minimum timeout of a request to etcd, even if --timeout is shorter."""


@attrs.frozen
class Wanted:
    """Hold the conditions to wait for. All must hold at once."""

    group: str
    settled: bool
    members: int | None
    holder: str | None

    def lacks(self, view: View) -> str:
        """Return the missing conditions in words, or ""."""
        lacks = [self._members(view), self._holder(view), self._settled(view)]
        return "; ".join(lack for lack in lacks if lack)

    def met(self, view: View) -> str:
        """Return the fulfilled conditions in words."""
        words = []
        if self.settled:
            words.append(f"settled at version {status_of_view(view, self.group).version}")
        if self.members is not None:
            words.append(_members(self.members))
        if self.holder is not None:
            words.append(f"{self._role(view, self.holder).holder} holds {self.holder}")
        return f"{self.group}: {', '.join(words)}"

    def _members(self, view: View) -> str:
        number = len(view.by_age)
        if self.members is None or number == self.members:
            return ""
        return f"it has {_members(number)}, not {self.members}"

    def _holder(self, view: View) -> str:
        if self.holder is None:
            return ""
        role = self._role(view, self.holder)
        return "" if role.held else f"{self.holder}: {role.why}"

    def _settled(self, view: View) -> str:
        if not self.settled:
            return ""
        status = status_of_view(view, self.group)
        if status.settled:
            return ""
        if status.settled is None:
            return f"it has pins by a scheme unknown here: {status.scheme}"
        if view.version is None:
            return why_no_version(view, self.group)
        ways = [f"{obstacle.member}: {obstacle.why}" for obstacle in status.in_the_way]
        return "; ".join(ways) or "it has no members"

    def _role(self, view: View, role: str) -> RoleSeen:
        (seen_role,) = roles_seen(view, self.group, [role])
        return seen_role


def _members(number: int) -> str:
    return f"{number} {plural(number, 'member')}"


@click.command(short_help="Wait until GROUP is settled, has N members, or a role is held.")
@click.argument("group", callback=check_group)
@click.option(
    "--settled",
    is_flag=True,
    help="Until every member follows the newest version and nothing drains.",
)
@click.option("--members", type=click.IntRange(min=0), metavar="N", help="Until it has N members.")
@click.option("--holder", metavar="ROLE", callback=check_role, help="Until ROLE is held.")
@click.option(
    "--timeout",
    metavar="S",
    type=Seconds(min=0),
    help="Seconds after which to give up.  [default: never]",
)
@with_target_but_timeout
def wait(
    group: str,
    settled: bool,
    members: int | None,
    holder: str | None,
    timeout: float | None,
    target: Target,
) -> None:
    """Wait until GROUP meets all options at once.

    Stderr says what is still missing. Exit status: 0 once all conditions hold, 3 after the timeout,
    1 if etcd does not answer.
    """
    if not settled and members is None and holder is None:
        raise click.UsageError("Say what to wait for: --settled, --members or --holder.")
    wanted = Wanted(group, settled, members, holder)
    world = outside()
    until = None
    if timeout is not None:
        until = world.clock.now() + timeout
        target = attrs.evolve(target, timeout=min(target.timeout, max(timeout, MIN_TIMEOUT_S)))
    with (
        opened(target) as etcd,
        observe.following(etcd, target.keys(group), world.clock, world.quiet_s, until) as views,
    ):
        with target.reading(group):
            first = next(views)
        lacks = _follow(wanted, itertools.chain([first], views))
    if lacks:
        raise Not(render.clean(f"still missing after {timeout:g} s: {lacks}"))


def _follow(wanted: Wanted, views: Iterator[View | Trouble]) -> str:
    """Follow the group until all conditions hold or the views end.

    Return the missing conditions in words, or "".

    Raises:
        EtcdError: etcd did not answer at the beginning or at the end.
    """
    lacks, trouble = "", ""
    for view in views:
        if isinstance(view, Trouble):
            trouble = view.text
            say(render.clean(view.text) or "etcd answers again")
            continue
        before, lacks = lacks, wanted.lacks(view)
        if not lacks:
            tell(render.clean(wanted.met(view)))
            return ""
        if lacks != before:
            say(render.clean(f"waiting for {wanted.group}: {lacks}"))
    if trouble:
        raise EtcdUnavailable(trouble)
    return lacks

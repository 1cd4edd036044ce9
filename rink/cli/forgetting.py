"""Delete the keys of a group whose members are all gone: `rink forget`.

One transaction deletes the keys, guarded by the revision that was read. It is refused if a key in
the group's range was written since then. So a member that joins meanwhile keeps its record.

Some keys stay, since fencing tokens must not go back: the last version if it has a token base, and
requests that raise the base, or may raise it. The offsets of partitions and the slots of
`rink run --once-per` stay, too. Their keys lie outside the group's range.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from shlex import quote

import attrs
import click

from rink.cli import observe, render
from rink.cli.exit_status import tell, wrapped
from rink.cli.options import Target, announced, check_group, opened, with_json, with_target
from rink.core.keys import OFFSETS, SLOTS, Keys
from rink.core.values import RequestEntry, Wish
from rink.core.view import View
from rink.core.wording import some
from rink.errors import StateError
from rink.etcd import api
from rink.etcd.api import Compare, Delete, Etcd
from rink.inspect.group_status import request_text
from rink.inspect.read_group import read_group
from rink.plural import plural


@attrs.frozen
class Kept:
    """List the keys of a group that stay in etcd."""

    version: int | None
    token_base: int
    requests: tuple[RequestEntry, ...]
    offsets: int = 0
    slots: int = 0

    def keys(self, keys: Keys) -> list[bytes]:
        """Return the keys in the group's own range that stay, in order."""
        kept = [keys.request(entry.id) for entry in self.requests]
        if self.version is not None:
            kept.append(keys.version(self.version))
        return sorted(kept)

    def lines(self, keys: Keys) -> Iterator[str]:
        """Yield a line for each kind of key that stays, with the reason."""
        if self.version is not None:
            yield (
                f"kept: version {self.version}, with the token base {self.token_base}, because "
                "fencing tokens must never go back"
            )
        for entry in self.requests:
            if entry.request is None:
                yield f"kept: the request {entry.id!r}, which cannot be read here"
            else:
                request = request_text(entry.request)
                yield f"kept: the request to {request}, for the next coordinator"
        if self.offsets:
            yield (
                f"kept: {self.offsets} {plural(self.offsets, 'offset')} of its partitions: "
                f"the next members go on from there, {_unless_deleted(keys, OFFSETS)}"
            )
        if self.slots:
            yield (
                f"kept: {self.slots} {plural(self.slots, 'slot')} of its `rink run --once-per`: "
                f"the next members run no finished slot again, {_unless_deleted(keys, SLOTS)}"
            )


def _unless_deleted(keys: Keys, mark: str) -> str:
    return f"unless you first run `etcdctl del --prefix {quote(root_beside(keys, mark).decode())}`"


def is_terminal() -> bool:
    """Return whether a person can answer a question on stdin."""
    return sys.stdin.isatty()


def root_beside(keys: Keys, mark: str) -> bytes:
    """Return the prefix of the group's `OFFSETS` or `SLOTS`."""
    return keys.root[:-1] + mark.encode() + b"/"


def count_beside(etcd: Etcd, keys: Keys, mark: str) -> int:
    """Count the keys of the group's `OFFSETS` or `SLOTS`."""
    root = root_beside(keys, mark)
    return len(etcd.range(root, root[:-1] + b"0").kvs)


@click.command(short_help="Delete the keys of GROUP, whose members are all gone.")
@click.argument("group", callback=check_group)
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_json
@with_target
def forget(group: str, yes: bool, as_json: bool, target: Target) -> None:
    """Delete the keys of GROUP, whose members are all gone.

    The command is refused while the group has members. Offsets of partitions, slots of `rink run`
    and the keys that keep fencing tokens from going back stay. The output lists these keys. On a
    terminal the command asks first.
    """
    keys = target.keys(group)
    with opened(target) as etcd:
        with target.reading(group):
            view = read_group(etcd, keys)
        if observe.is_empty(view):
            raise target.unknown(group)
        kept = _keys_to_keep(view, group, keys)
        kept = attrs.evolve(
            kept, offsets=count_beside(etcd, keys, OFFSETS), slots=count_beside(etcd, keys, SLOTS)
        )
        deleted = _key_count(view) - len(kept.keys(keys))
        if deleted and is_terminal() and not yes:
            question = f"Delete {deleted} {plural(deleted, 'key')} of group {group!r}?"
            click.confirm(wrapped(question, sys.stderr), abort=True, err=True)
        if deleted:
            with announced(target, f"deleting group {group!r} in"):
                _delete(etcd, keys, view, kept)
    if as_json:
        requests = [entry.id for entry in kept.requests]
        facts = {"group": group, "prefix": target.prefix, "deleted": deleted}
        facts["kept"] = {**attrs.asdict(kept, recurse=False), "requests": requests}
        click.echo(json.dumps(facts, indent=2))
        return
    done = (
        f"is forgotten: {deleted} {plural(deleted, 'key')} deleted"
        if deleted
        else "has nothing to forget"
    )
    for line in (f"{group} {done}", *kept.lines(keys)):
        tell(render.clean(line))


def _keys_to_keep(view: View, group: str, keys: Keys) -> Kept:
    """Return the keys of the group's own range that must stay.

    Raises:
        StateError: members live, or the newest version cannot be read.
    """
    if view.by_age:
        names, count = some(tuple(member.name for member in view.by_age)), len(view.by_age)
        raise StateError(
            f"group {group!r} still has {count} {plural(count, 'member')} ({names}). Stop all "
            "members first. A killed member counts until its lease ends: "
            f"`rink wait {quote(group)} --members 0` waits for that",
            key=keys.root.decode(),
        )
    newest = view.newest
    if newest is not None and newest.version is None:
        key = keys.version(newest.number).decode()
        raise StateError(
            f"version {newest.number} of group {group!r} {newest.problem}. It may hold a token "
            f"base, which must be kept: use a Rink that reads it, or delete the key {key!r} if you "
            "know that it has none",
            key=key,
        )
    version = view.version if view.version and view.version.token_base else None
    requests = sorted(view.requests.values(), key=lambda entry: entry.mod_revision)
    # A request that cannot be read may raise the token base.
    raises = (
        entry
        for entry in requests
        if entry.request is None or entry.request.wish is Wish.TOKEN_BASE
    )
    return Kept(
        version=version.number if version else None,
        token_base=version.token_base if version else 0,
        requests=tuple(raises),
    )


def _key_count(view: View) -> int:
    return len(view.members) + len(view.versions) + len(view.requests) + len(view.clutter)


def _delete(etcd: Etcd, keys: Keys, view: View, kept: Kept) -> None:
    """Delete the keys of the group's range that are not kept.

    Delete no key if the range was written to since the read. This holds even if the transaction is
    applied late: a record that is not in the view has a later revision.

    Raises:
        StateError: the range was written to.
    """
    unwritten = Compare(keys.root, api.TxnTarget.MOD, view.revision + 1, keys.end, is_below=True)
    starts = [keys.root, *(key + b"\0" for key in kept.keys(keys))]
    ends = [*kept.keys(keys), keys.end]
    deletes = tuple(Delete(start, end) for start, end in zip(starts, ends, strict=True))
    if not etcd.txn((unwritten,), deletes).succeeded:
        root = keys.root.decode()
        raise StateError(
            f"something was written under {root!r} while this command ran, so nothing was deleted: "
            "look at the group with `rink status`, and run this again if the group still has no "
            "members",
            key=root,
        )

"""Describe the events of a group between two views of it.

Events do not show which roles are held: no key in etcd names a role, unless it drains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from rink.core.values import Member
from rink.core.view import View
from rink.core.wording import some
from rink.inspect import version_diff
from rink.inspect.group_status import leaving_text, problems_of, request_text


@attrs.frozen
class Happening:
    """Describe one event. `facts` are its further JSON fields."""

    event: str
    text: str
    facts: Mapping[str, Any] = attrs.field(factory=dict)


def between(before: View, after: View, was_settled: bool, is_settled: bool) -> list[Happening]:
    """Return the events between two views, causes before their effects.

    The caller passes whether each view is settled, since computing this is the most expensive part.
    """
    return [
        *_came(before, after),
        *_versions(before, after),
        *_requests(before, after),
        *_drains(before, after),
        *_went(before, after),
        *_coordinator(before, after),
        *_problems(before, after),
        *_settled_event(before, after, was_settled, is_settled),
    ]


def _live(view: View) -> dict[str, Member]:
    return {member.name: member for member in view.by_age}


def _phase(member: Member) -> str:
    return "unreadable" if member.record is None else member.record.phase.value


def _draining(member: Member | None) -> tuple[str, ...]:
    return member.record.draining if member and member.record else ()


def _came(before: View, after: View) -> Iterator[Happening]:
    was = _live(before)
    for name, member in _live(after).items():
        old = was.get(name)
        facts = {
            "member": name,
            "phase": _phase(member),
            "labels": dict(member.record.labels) if member.record else {},
        }
        if old is None:
            yield Happening("joined", f"{name} joined", facts)
        elif old.create_revision != member.create_revision:
            yield Happening("rejoined", f"{name} has rejoined, with a new session", facts)
        if (leaving := _leaving(member)) and not (old and _leaving(old)):
            yield Happening("leaving", f"{name} is {leaving}", {"member": name})


def _leaving(member: Member) -> str:
    return leaving_text(member.record) if member.record else ""


def _went(before: View, after: View) -> Iterator[Happening]:
    here = _live(after)
    for name, member in _live(before).items():
        if name in here:
            continue
        # A leave that keeps the rank, or that has no successor, looks like a crash.
        how = "has left" if _leaving(member) else "is gone, without leaving first"
        drains = _draining(member)
        claims = f", and its claim on {some(drains)} has ended" if drains else ""
        facts = {
            "member": name,
            "phase": _phase(member),
            "draining": list(drains),
            "ttl": member.record.ttl if member.record else None,
        }
        yield Happening("gone", f"{name} {how}{claims}", facts)


def _versions(before: View, after: View) -> Iterator[Happening]:
    newest = before.newest.number if before.newest else 0
    last = newest  # it never goes back, so earlier versions do not count as skipped
    for number in sorted(after.versions):
        skipped, last = range(last + 1, number), max(last, number)
        # A number may come again if an operator deleted the log and the group started anew.
        old = before.versions.get(number)
        if number <= newest and (old is None or old == after.versions[number]):
            continue
        step = version_diff.step(after, number)
        version = step.entry.version
        if version is None:
            text = f"version {number} {step.entry.problem}"
        else:
            because = "; ".join(version.because) or "no cause given"
            moves = some(tuple(str(move) for move in step.changed.moves)) if step.changed else ""
            text = f"version {number} because {because}" + (f" · {moves}" if moves else "")
        facts = {**step.as_json(), "skipped": [skipped[0], skipped[-1]] if skipped else None}
        yield Happening("version", text + _pruned(skipped), facts)


def _pruned(skipped: range) -> str:
    if not skipped:
        return ""
    if len(skipped) == 1:
        return f" · version {skipped[0]} was pruned unseen"
    return f" · versions {skipped[0]} to {skipped[-1]} were pruned unseen"


def _requests(before: View, after: View) -> Iterator[Happening]:
    for entry in sorted(after.requests.values(), key=lambda entry: (entry.mod_revision, entry.id)):
        if entry.id not in before.requests and entry.request is not None:
            text = request_text(entry.request)
            yield Happening("requested", f"asked for: {text}", {"id": entry.id, "wish": text})


def _drains(before: View, after: View) -> Iterator[Happening]:
    was = _live(before)
    for name, member in _live(after).items():
        old, new = _draining(was.get(name)), _draining(member)
        begun = tuple(role for role in new if role not in old)
        ended = tuple(role for role in old if role not in new)
        if begun:
            text = f"{name} has lost {some(begun)} (not released yet)"
            yield Happening("draining", text, {"member": name, "roles": list(begun)})
        if ended:
            text = f"{name} has released {some(ended)}"
            yield Happening("drained", text, {"member": name, "roles": list(ended)})


def _coordinator(before: View, after: View) -> Iterator[Happening]:
    was = before.coordinator.name if before.coordinator else None
    now = after.coordinator.name if after.coordinator else None
    if was != now:
        text = f"{now} coordinates" if now else "nobody coordinates"
        yield Happening("coordinator", text, {"member": now})


def _problems(before: View, after: View) -> Iterator[Happening]:
    was, now = dict(problems_of(before)), dict(problems_of(after))
    for key, problem in now.items():
        if was.get(key) != problem:
            facts = {"key": key, "problem": problem}
            yield Happening("problem", f"{key} {problem}", facts)
    for key in was.keys() - now.keys():
        yield Happening("problem", f"{key} has no problem any more", {"key": key, "problem": ""})


def _settled_event(
    before: View, after: View, was_settled: bool, is_settled: bool
) -> Iterator[Happening]:
    number = after.newest.number if after.newest else 0
    was_newest = before.newest.number if before.newest else 0
    if is_settled and not (was_settled and number == was_newest):
        yield Happening("settled", f"settled at version {number}")

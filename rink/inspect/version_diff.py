"""Compare the versions that etcd keeps with the versions before them."""

from __future__ import annotations

from typing import Any

import attrs

from rink.core.values import Proclaimed, Version
from rink.core.view import View


@attrs.frozen
class Move:
    """Hold a move of a rank (a number) or a pinned role; None is nobody."""

    what: int | str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        what = f"rank {self.what}" if isinstance(self.what, int) else f"pin {self.what}"
        return f"{what}: {self.before or '-'} → {self.after or '-'}"


@attrs.frozen
class VersionDiff:
    """Hold the differences between two versions."""

    ranks: tuple[Move, ...]
    pins: tuple[Move, ...]
    size_before: int
    size_after: int

    @property
    def moves(self) -> tuple[Move, ...]:
        """Return the moves of ranks, then the moves of pins."""
        return self.ranks + self.pins


@attrs.frozen
class VersionStep:
    """Hold a version and its changes (None without the version before)."""

    entry: Proclaimed
    changed: VersionDiff | None

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; no key is ever missing."""
        version = self.entry.version
        return {
            "number": self.entry.number,
            "proclaimed": version.proclaimed if version else "",
            "by": version.by if version else "",
            "because": list(version.because) if version else [],
            "ranks": list(version.ranks) if version else [],
            "scheme": version.scheme if version else "",
            "pins": dict(version.pins) if version else {},
            "token_base": version.token_base if version else 0,
            "changed": changed_json(self.changed),
            "problem": self.entry.problem,
        }


def changed_json(changed: VersionDiff | None) -> dict[str, Any] | None:
    """Return the changes as plain JSON values."""
    if changed is None:
        return None
    return {
        "ranks": [{"rank": m.what, "before": m.before, "after": m.after} for m in changed.ranks],
        "pins": [{"role": m.what, "before": m.before, "after": m.after} for m in changed.pins],
        "size_before": changed.size_before,
        "size_after": changed.size_after,
    }


def steps(view: View) -> list[VersionStep]:
    """Return every stored version with its changes, oldest first."""
    return [step(view, number) for number in sorted(view.versions)]


def step(view: View, number: int) -> VersionStep:
    """Return one version with its changes."""
    entry = view.versions[number]
    before = view.versions.get(number - 1)
    earlier = before.version if before else None
    if number == 1 and entry.version is not None:
        earlier = Version(number=0, ranks=(), scheme=entry.version.scheme)
    if earlier is None or entry.version is None:
        return VersionStep(entry, None)
    return VersionStep(entry, change(earlier, entry.version))


def change(before: Version, after: Version) -> VersionDiff:
    """Compare two versions."""
    longest = max(len(before.ranks), len(after.ranks))
    pairs = zip(_padded(before.ranks, longest), _padded(after.ranks, longest), strict=True)
    roles = sorted(before.pins.keys() | after.pins.keys())
    pinned = [Move(role, before.pins.get(role), after.pins.get(role)) for role in roles]
    return VersionDiff(
        ranks=tuple(Move(rank, old, new) for rank, (old, new) in enumerate(pairs) if old != new),
        pins=tuple(move for move in pinned if move.before != move.after),
        size_before=len(before.ranks),
        size_after=len(after.ranks),
    )


def _padded(ranks: tuple[str, ...], size: int) -> list[str | None]:
    return [*ranks, *[None] * (size - len(ranks))]

"""Define a mutant: one rule broken by replacing a piece of the source."""

from __future__ import annotations

import attrs


@attrs.frozen
class Mutant:
    """A rule to break, and the files of tests that are to catch it.

    The old text must be found exactly once in its file, or `mutants.py` fails.
    """

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def is_of_core(self) -> bool:
        """Return whether it breaks the core, or the etcd of the core's tests."""
        return self.file.startswith(("rink/core/", "tests/core/"))


def core(what: str, module: str, old: str, new: str, *tests: str) -> Mutant:
    """Return a mutant of `rink/core`, for tests in `tests/core`."""
    names = tuple(f"core/test_{name}" for name in tests)
    return Mutant(what, f"rink/core/{module}.py", old, new, names)


def engine(what: str, module: str, old: str, new: str, *tests: str) -> Mutant:
    """Return a mutant of `rink/engine`."""
    return Mutant(what, f"rink/engine/{module}.py", old, new, tests)


def etcd(what: str, module: str, old: str, new: str, *tests: str) -> Mutant:
    """Return a mutant of `rink/etcd`, for tests in `tests/etcd`."""
    names = tuple(f"etcd/test_etcd_{name}" for name in tests)
    return Mutant(what, f"rink/etcd/{module}.py", old, new, names)

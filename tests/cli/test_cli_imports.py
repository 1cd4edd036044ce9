"""Test the imports and the CPU time of fast command lines.

Readiness checks run `rink --version`, preStop hooks run `rink drain`, and shell scripts run `rink
held` before each write.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import rink
from rink.cli.commands import HOMES, commands
from rink.pip_distribution import install_command

IMPORTED_BY_VERSION = {
    "rink",
    "rink.cli",
    "rink.cli.commands",
    "rink.cli.exit_status",
    "rink.cli.missing_extra",
    "rink.pip_distribution",
    "rink.errors",
    "rink._lazy",
}

IMPORTED_BY = {
    ("--version",): set(),
    ("drain", "--api", "127.0.0.1:1"): {"rink.cli.draining"},
    ("held", "a", "--files", "/nowhere"): {
        "rink.cli.held",
        "rink.mount_table",
        "rink.plural",
        "rink.sidecar",
        "rink.sidecar.clock",
        "rink.sidecar.role_files",
    },
}
"""Command lines that must be fast, and the further modules of Rink that each one imports."""

MAX_CPU_S = 0.15
MAX_BARE_RUNS = 12
"""Limit of the CPU time on a slow machine, as a multiple of a bare interpreter's."""

RUNS = 3
"""Runs, of which the cheapest counts: other processes only add to the CPU time of a run."""

SCRIPT = """
import json, sys, time
sys.argv = ["rink", *{line}]
from rink.cli import main
try:
    main()
except SystemExit as ended:
    status = ended.code
print(json.dumps([status or 0, list(sys.modules), time.process_time()]), file=sys.stderr)
"""

BARE = "import time; print(time.process_time())"


def run_process(*line):
    """Run a command line in a new process.

    Returns its output, status, modules and CPU seconds.
    """
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT.format(line=list(line))],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(rink.__file__).parents[1])},
    )
    return done.stdout, *json.loads(done.stderr.splitlines()[-1])


def of_packages(modules):
    """Return the modules' packages that are neither Rink nor in the stdlib."""
    site = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    return {name for name in site if not name.startswith(("_", "rink"))}


def bare_cpu_s():
    """Return the CPU seconds of an interpreter that does nothing."""
    return float(subprocess.check_output([sys.executable, "-P", "-c", BARE], text=True))


def test_version_is_answered():
    output, status, _, _ = run_process("--version")
    assert (output.split()[0], status) == ("rink,", 0)


@pytest.mark.parametrize("line", IMPORTED_BY, ids=" ".join)
def test_fast_command_imports_click_and_few_modules_of_ours(line):
    _, _, modules, _ = run_process(*line)
    ours = {name for name in modules if name.partition(".")[0] == "rink"}
    assert ours == IMPORTED_BY_VERSION | IMPORTED_BY[line]
    assert of_packages(modules) <= {"click", "colorama", "sitecustomize"}


@pytest.mark.parametrize("line", IMPORTED_BY, ids=" ".join)
def test_fast_command_costs_little_cpu_time(line):
    bare_s = min(bare_cpu_s() for _ in range(RUNS))
    cpu_s = min(run_process(*line)[3] for _ in range(RUNS))
    assert cpu_s <= max(MAX_CPU_S, MAX_BARE_RUNS * bare_s)


@pytest.mark.parametrize(("missing", "status"), [("rich.table", 2), ("nobody", 1)])
def test_command_that_lacks_a_module_of_the_extra_exits_with_2(monkeypatch, missing, status):
    def import_module(_):
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr("rink.cli.commands.import_module", import_module)
    result = CliRunner().invoke(commands, ["groups"])
    assert result.exit_code == status
    told = f"rink: the command line needs {missing}: {install_command('cli')}\n"
    assert (result.stderr == told) == (status == 2)


def test_one_command_imports_no_other_command():
    _, status, modules, _ = run_process("groups", "--help")
    assert status == 0
    others = {home for home in HOMES.values() if home != HOMES["groups"]}
    assert others.isdisjoint(modules)


def test_help_lists_every_command_with_a_line_about_it():
    result = CliRunner().invoke(commands, ["--help"])
    assert result.exit_code == 0
    lines = [line.split(maxsplit=1) for line in result.stdout.splitlines()]
    for name in HOMES:
        (said,) = [line[1] for line in lines if line[0:1] == [name] and len(line) == 2]
        assert said.endswith("."), f"the help of {name} is cut: {said}"


@pytest.mark.parametrize("name", sorted(HOMES))
def test_command_is_found_under_its_name(name):
    result = CliRunner().invoke(commands, [name, "--help"])
    assert result.exit_code == 0
    assert f"rink {name}" in result.stdout or f"commands {name}" in result.stdout

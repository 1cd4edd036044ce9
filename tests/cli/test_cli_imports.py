"""What a command line imports before it answers: `rink --version` stands in readiness checks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import rink
from rink.cli.commands import HOMES, commands
from rink.distribution import install_command

IMPORTED_BY_VERSION = {
    "rink",
    "rink.cli",
    "rink.cli.commands",
    "rink.cli.ends",
    "rink.distribution",
    "rink.errors",
    "rink.lazily",
}

MAX_CPU_S = 0.15

SCRIPT = """
import json, os, sys
sys.argv = ["rink", *{line}]
from rink.cli import main
try:
    main()
except SystemExit as ended:
    status = ended.code
used = os.times()
print(json.dumps([status or 0, list(sys.modules), used.user + used.system]), file=sys.stderr)
"""


def run_process(*line):
    """Run a command line in a new process; return its output, status, modules and CPU seconds."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT.format(line=list(line))],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(rink.__file__).parents[1])},
    )
    return done.stdout, *json.loads(done.stderr.splitlines()[-1])


def of_packages(modules):
    """The packages that are not of the standard library, ours left out."""
    site = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    return {name for name in site if not name.startswith(("_", "rink"))}


def test_version_imports_click_and_few_modules_of_ours():
    output, status, modules, cpu_s = run_process("--version")
    assert (output.split()[0], status) == ("rink,", 0)
    assert {name for name in modules if name.partition(".")[0] == "rink"} == IMPORTED_BY_VERSION
    assert of_packages(modules) <= {"click", "colorama", "sitecustomize"}
    assert cpu_s < 4 * MAX_CPU_S  # a bound for a busy machine; the modules above are the check


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
def test_a_command_is_found_under_its_name(name):
    result = CliRunner().invoke(commands, [name, "--help"])
    assert result.exit_code == 0
    assert f"rink {name}" in result.stdout or f"commands {name}" in result.stdout

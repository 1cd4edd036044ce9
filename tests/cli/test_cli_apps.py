"""Test how a command finds its app, and its errors without an app."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rink.cli import apps
from rink.errors import RinkError


def test_app_is_imported_from_the_current_folder(shop):
    assert apps.load(shop).name == "shop"


def test_app_may_lie_deeper_than_its_module(module):
    name = module("""
        from rink.streams import App
        class settings:
            app = App("deep")
    """)
    assert apps.load(f"{name}:settings.app").name == "deep"


@pytest.mark.parametrize("text", ["shop", "shop:", ":app", ""])
def test_what_names_no_module_and_attribute_is_wrong_usage(run, text):
    result = run("streams", "lag", text)
    assert result.exit_code == 2
    assert (
        f"{text!r} names no app: give its module and attribute, such as shop:app" in result.stderr
    )


def test_module_that_is_not_there(run, module, tmp_path):
    result = run("streams", "lag", "no_such_shop.main:app")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"rink: there is no module 'no_such_shop' in {tmp_path} or ")
    assert result.stderr.count("\n") == 1


def test_attribute_that_is_not_there_and_which_are_apps(run, shop):
    name = shop.partition(":")[0]
    result = run("streams", "lag", f"{name}:ap")
    assert result.exit_code == 1
    assert result.stderr.endswith("has no attribute 'ap'; its apps are ['app']\n")


@pytest.mark.parametrize(
    ("attr", "what"),
    [("Order", "the class Order"), ("bill", "the function bill"), ("orders", "of type Stream")],
)
def test_what_is_no_app(run, shop, attr, what):
    name = shop.partition(":")[0]
    result = run("streams", "lag", f"{name}:{attr}")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"rink: {name}:{attr} is {what}, and no rink.streams.App")


def test_what_a_module_raises_is_shown_with_its_own_lines_alone(run, module):
    name = module("""
        def price(): return 1 / 0
        price()
    """)
    result = run("streams", "lag", f"{name}:app")
    assert result.exit_code == 1
    *trace, last = result.stderr.splitlines()
    assert (
        last == f"rink: module '{name}' could not be imported: ZeroDivisionError: division by zero"
    )
    assert trace[-1] == "ZeroDivisionError: division by zero"
    assert [line.split(", ", 1)[1] for line in trace if "File" in line] == [
        "line 3, in <module>",
        "line 2, in price",
    ]


def test_module_that_lacks_another_one_is_there_itself(run, module):
    name = module("import no_such_wares")
    result = run("streams", "lag", f"{name}:app")
    assert result.exit_code == 1
    assert "import no_such_wares" in result.stderr
    assert "No module named 'no_such_wares'" in result.stderr.splitlines()[-1]
    assert "there is no module" not in result.stderr


def test_module_with_a_mistake_in_it_shows_where(run, module):
    result = run("streams", "lag", f"{module('def')}:app")
    assert result.exit_code == 1
    assert "line 1" in result.stderr
    assert "SyntaxError" in result.stderr.splitlines()[-1]


def test_of_several_errors_of_ours_the_first_is_told(shop):
    async def fail():
        raise ExceptionGroup(
            "tasks", [ExceptionGroup("more", [RinkError("Redis is away")]), RinkError("as well")]
        )

    with pytest.raises(RinkError, match="Redis is away"):
        apps.run(apps.load(shop), fail)


def test_among_several_errors_a_bug_is_not_hidden(shop):
    async def fail():
        raise ExceptionGroup("tasks", [RinkError("Redis is away"), KeyError("bug")])

    with pytest.raises(ExceptionGroup):
        apps.run(apps.load(shop), fail)


WITHOUT = """
import sys
sys.modules[{missing!r}] = None
sys.argv = ["rink", *{line!r}]
from rink.cli import main
main()
"""


def without(missing, *line):
    """Run a command line without a package."""
    code = WITHOUT.format(missing=missing, line=line)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("missing", ["redis", "prometheus_client", "cronsim"])
def test_without_the_extra_streams_its_commands_say_what_to_install(missing):
    result = without(missing, "streams", "lag", "shop:app")
    assert result.returncode == 2
    assert result.stderr == f"rink: streams need {missing}: pip install 'etcd-rink[streams]'\n"


def test_without_the_extra_streams_all_else_works():
    result = without("redis", "--help")
    assert result.returncode == 0
    assert "worker" in result.stdout
    assert without("redis", "streams", "reset", "--help").returncode == 0

"""Test a terminal of 40 columns: no line is longer, no word is broken."""

import io
import os

import click
import pytest
from click.testing import CliRunner
from rich.console import Console
from test_cli_admin import WHERE, lag_of, letter_of
from test_cli_owner import grown
from test_cli_status import KEYS

from rink.cli import exit_status, render_streams
from rink.cli.commands import HOMES, commands, terminal_width
from rink.core import codec
from rink.core.values import Request, Wish
from rink.streams.admin import DeadLetters, Unquarantined

WIDTH = 40
RELEASED = Unquarantined(
    **WHERE, offset="17953425-0", skipped="17953425-0", reason="13 is too heavy"
)


@pytest.fixture
def narrow(monkeypatch):
    """Make stdout and stderr terminals of 40 columns."""
    monkeypatch.setattr(exit_status, "columns", lambda _: WIDTH)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((WIDTH, 30)))


def check(text, *words):
    assert max(map(len, text.splitlines())) <= WIDTH, text
    assert [word for word in words if word not in text] == [], text


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (render_streams.show_lag([lag_of()]), ["bill  orders/3\n", "held 12", "of 50000"]),
        (
            render_streams.show_letters(DeadLetters(total=1, letters=(letter_of(),))),
            ["1700000009000-0  bill  orders/3\n", "error ValueError", "thirteen"],
        ),
        (
            render_streams.show_unquarantined([RELEASED]),
            ["bill  orders/3\n", "skipped", "quarantined for 13"],
        ),
    ],
)
def test_streams_table_on_a_narrow_terminal_becomes_lines(shown, words):
    console = Console(file=io.StringIO(), width=WIDTH)
    console.print(shown)
    check(console.file.getvalue(), *words)


def test_error_on_a_narrow_terminal_is_wrapped_at_words(narrow, town, run):
    town.settled("a")
    check(
        run("forget", "orders").stderr, "Stop all members first.", "`rink wait orders --members 0`"
    )


def every_command(command=commands, path=()):
    """Yield the words of each command and subcommand."""
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from every_command(command.get_command(context, name), (*path, name))


MAX_INDENT = 16
"""Most empty columns before the text of an option."""


@pytest.mark.parametrize("path", list(every_command()), ids=" ".join)
def test_help_on_a_narrow_terminal_is_wrapped_at_words(narrow, path):
    """The help breaks no word, and is no narrow column."""
    arguments = [*path, "--help"]
    wide = CliRunner().invoke(commands, arguments, terminal_width=200).stdout
    shown = CliRunner().invoke(commands, arguments, terminal_width=terminal_width()).stdout
    check(shown, "Usage:", "Options:", *wide.split())
    options = shown.partition("Options:")[2].splitlines()
    indents = [len(line) - len(line.lstrip()) for line in options]
    assert max(indents) <= MAX_INDENT, shown


def test_walk_of_the_commands_finds_subcommands():
    found = set(every_command())
    assert {(), ("worker",), ("streams",), ("streams", "reset")} <= found
    assert len(found) > len(HOMES) + 5


def test_option_help_on_a_narrow_terminal_breaks_no_name_or_address(narrow):
    ran = CliRunner().invoke(commands, ["owner", "--help"], terminal_width=terminal_width())
    check(ran.stdout, "RINK_ETCD_PASSWORD]", "127.0.0.1:2379]")


def test_wrong_setting_on_a_narrow_terminal_is_wrapped_at_words(narrow):
    said = CliRunner().invoke(commands, ["groups", "--user", "u"]).stderr
    check(said, "Error: --user 'u' is given without\n--password")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["groups", "--al"], "No such option"),
        (["groups", "--al"], "Did you mean"),
        (["groups", "--al"], "--all"),
        (["nowhere-to-be-found-in-the-commands"], "No such command"),
        (["--no-option-of-the-command-line"], "No such option"),
        (["wait", "a"], "Error: Say what to wait for: --settled,\n--members or --holder."),
        (["wait", "a", "--members", "x"], "'x' is not a valid integer range"),
        (["streams", "forget-group"], "Missing argument 'MODULE:ATTR'"),
    ],
)
def test_usage_error_on_a_narrow_terminal_is_wrapped_at_words(narrow, arguments, words):
    ran = CliRunner().invoke(commands, arguments, terminal_width=terminal_width())
    assert ran.exit_code == 2
    check(ran.stderr, "Usage:", "Error:")
    assert " ".join(words.split()) in " ".join(ran.stderr.split())


def test_usage_error_of_rinks_own_breaks_its_lines_at_words(narrow):
    """Click writes the lines before it."""
    ran = CliRunner().invoke(commands, ["wait", "a"], terminal_width=terminal_width())
    assert ran.stderr.partition("Error: ")[2].splitlines() == [
        "Say what to wait for: --settled,", "--members or --holder.",
    ]  # fmt: skip


def test_group_without_a_command_shows_its_help(narrow):
    ran = CliRunner().invoke(commands, ["streams"], terminal_width=terminal_width())
    check(ran.output, "Usage:", "Commands:")
    assert "Error:" not in ran.output


def test_wrapped_keeps_a_command_in_one_piece(narrow):
    command = "`pip install 'etcd-rink[testing]' --upgrade`"
    assert exit_status.wrapped(f"there is none: {command} brings one", None).splitlines() == [
        "there is none:", command, "brings one",
    ]  # fmt: skip


def test_help_on_a_wide_terminal_is_as_wide_as_click_has_it(monkeypatch):
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((80, 30)))
    assert terminal_width() is None


# ── what the commands write ──


@pytest.fixture
def shown(narrow, run, monkeypatch):
    """Run a command, and return stdout and stderr without long lines.

    A command in backticks stays in one piece, so that it can be copied. So it may be longer.
    """
    monkeypatch.setattr("rink.cli.render.PIPE_WIDTH", WIDTH)

    def shown(*line):
        result = run(*line)
        assert result.exit_code in {0, 3}, result.output
        lines = [*result.stdout.splitlines(), *result.stderr.splitlines()]
        check("\n".join(line for line in lines if not line.startswith("`etcdctl ")))
        return " ".join((result.stdout + result.stderr).split())

    return shown


def test_owner_on_a_narrow_terminal_fits(town, shown):
    grown(town)
    town.clock.advance(21)
    text = shown("owner", "orders", "job-2", "job-1", "leader")
    assert "job-2: a has not released it, since version 2, 0 s ago by a's clock" in text
    assert "not renewed a: its lease was not renewed" in text


def test_groups_on_a_narrow_terminal_fit(town, shown):
    town.settled("a", "b")
    town.version(1, "c", group="payments-of-the-shop")
    town.write(b"rink/orders-of-nobody", b"")
    text = shown("groups")
    assert "1 group without members is hidden: --all shows it" in text
    assert "not keys of a group: rink/orders-of-nobody" in text
    assert "payments-of-the-shop" in shown("groups", "--all")


def test_no_groups_on_a_narrow_terminal_fits(shown):
    assert shown("groups") == (
        "no groups: the etcd at http://127.0.0.1:2379 has no key under 'rink/'"
    )


def test_history_on_a_narrow_terminal_fits(town, shown):
    town.settled("a", "b")
    town.version(2, "a", "b", "c", because=("joined c",))
    text = shown("history", "orders")
    assert "because joined c" in text
    assert "rank 2: - → c" in text


def test_no_history_on_a_narrow_terminal_fits(town, shown):
    town.record("a", group="payments-of-the-shop-in-vienna")
    text = shown("history", "payments-of-the-shop-in-vienna")
    assert text == "group 'payments-of-the-shop-in-vienna' has no version yet"


def test_forget_on_a_narrow_terminal_fits(town, shown):
    town.version(7, "a", token_base=7000)
    town.write(KEYS.request("1"), codec.encode(Request(Wish.TOKEN_BASE, token_base=9000)))
    town.write(b"rink/orders:offsets/topic/0", b"")
    text = shown("forget", "orders", "--yes")
    assert "kept: version 7, with the token base 7000, because fencing tokens" in text
    assert "kept: the request to raise the token base to 9000, for the next" in text
    assert "kept: 1 offset of its partitions" in text


def test_wait_on_a_narrow_terminal_fits(town, shown):
    grown(town)
    options = ("--settled", "--holder", "job-2", "--members", "3", "--timeout", "0")
    text = shown("wait", "orders", *options)
    assert "waiting for orders: it has 2 members, not 3; job-2: a has not released it" in text
    town.settled("a", "b")
    options = ("--settled", "--holder", "job-2", "--members", "2")
    assert "settled at version 2, 2 members, b holds job-2" in shown("wait", "orders", *options)


def test_status_of_a_waiting_member_on_a_narrow_terminal_fits(town, shown):
    town.settled("a")
    town.record("b")
    assert "not ranked yet b: the group grows for it" in shown("status", "orders")

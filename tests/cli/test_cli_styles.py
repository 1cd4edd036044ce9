"""Test the colours of a terminal: green only if all is well."""

import io

import pytest
from cli_support import LEAVING
from rich.console import Console
from rich.text import Text
from test_cli_owner import LEADER, grown

from rink.cli import render
from rink.core.member_record import Share
from rink.errors import EtcdAuth

WIDTH = 160


@pytest.fixture
def styles(run, monkeypatch):
    """Run a command on a colour terminal, and return the styles of a text."""

    def styles(text, *line):
        file = io.StringIO()
        console = Console(
            file=file, force_terminal=True, color_system="standard", width=WIDTH, highlight=False
        )
        monkeypatch.setattr(render, "console", lambda **_: console)
        result = run(*line)
        assert result.exit_code in {0, 3}, result.output
        shown = Text.from_ansi(file.getvalue())
        assert text in shown.plain, shown.plain
        start = shown.plain.index(text)
        end = start + len(text)
        found = [str(one.style) for one in shown.spans if one.start < end and one.end > start]
        whole = [one for one in shown.spans if one.start <= start and one.end >= end]
        assert len(found) == len(whole) <= 1, "the text has several styles"
        return found[0].replace("color(2)", "green").replace("color(3)", "yellow") if found else ""

    return styles


STATUS = ("status", "orders")
OWNER = ("owner", "orders", LEADER)


def test_status_of_settled_group_whose_leases_are_renewed_is_green(town, styles):
    town.settled("a", "b")
    assert styles("settled", *STATUS) == "green"
    town.clock.advance(10)
    assert styles("settled", *STATUS) == "green"
    assert styles("≤ 51 s", *STATUS) == ""


def test_status_of_settled_group_with_an_overdue_lease_is_yellow(town, styles):
    town.settled("a", "b")
    town.clock.advance(21)
    town.renew("b")
    assert styles("settled, but a does not renew its lease", *STATUS) == "bold yellow"
    assert styles("≤ 40 s", *STATUS) == "bold yellow"
    assert styles("≤ 60 s", *STATUS) == ""
    assert styles("a: its lease was not renewed", *STATUS) == "yellow"


def test_status_of_settled_group_with_a_lease_that_is_over_is_yellow(town, styles):
    town.settled("a")
    town.lease_answers = [-1] * 2
    assert styles("settled, but a does not renew", *STATUS) == "bold yellow"
    assert styles("over ", *STATUS) == "bold yellow"


def test_status_of_settled_group_whose_leases_are_unknown_is_not_green(town, styles):
    town.settled("a")
    town.lease_faults = [EtcdAuth("permission denied")] * 2
    assert styles("settled", *STATUS) == ""
    assert styles("permission denied", *STATUS) == "yellow"


def test_status_of_group_that_is_not_settled_is_yellow(town, styles):
    grown(town)
    assert styles("not settled", *STATUS) == "bold yellow"
    town.record("a", phase=LEAVING, shares=(Share(0, 2, "jump"),))
    assert styles("leaving", *STATUS) == "yellow"


def test_owner_of_a_role_whose_holder_renews_its_lease_is_green(town, styles):
    town.settled("a", "b")
    town.clock.advance(21)
    town.renew("b")
    assert styles("held", *OWNER) == "green", "a's lease is overdue, and a does not hold it"


def test_owner_of_a_role_whose_holder_is_overdue_is_yellow(town, styles):
    town.settled("a", "b")
    town.clock.advance(21)
    town.renew("a")
    assert styles("held", *OWNER) == "yellow"
    assert styles("b: its lease was not renewed", *OWNER) == "yellow"


def test_owner_of_a_held_role_without_its_lease_is_yellow(town, styles):
    town.settled("a", "b")
    town.lease_faults = [EtcdAuth("permission denied")]
    assert styles("held", *OWNER) == "yellow"


def test_owner_of_a_role_that_is_not_held_is_bold_yellow(town, styles):
    grown(town)
    assert styles("not held", *OWNER) == "bold yellow"


def test_styles_of_held_and_not_held_in_one_table_differ(town, styles):
    grown(town)
    assert styles("held", "owner", "orders", "job-1", LEADER) == "green"
    assert styles("not held", "owner", "orders", "job-1", LEADER) == "bold yellow"

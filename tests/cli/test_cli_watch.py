from __future__ import annotations

import io
import json
from functools import partial

import pytest
from cli_support import JOINED, LEAVING, Clock
from rich.console import Console

from rink.cli.group_events import Happening, between
from rink.cli.watching import LiveLog, line
from rink.core import codec
from rink.core.keys import Keys
from rink.core.member_record import Phase, Share
from rink.core.values import Request, Wish
from rink.errors import EtcdAuth, EtcdUnavailable
from rink.inspect.read_group import read_group

KEYS = Keys.of("rink/", "orders")


@pytest.fixture
def watch(town, run):
    """Watch during a script to its end, and return the events as JSON."""

    def watch(*script, options=()):
        town.script = list(script)
        result = run("watch", "orders", *options)
        assert (result.exit_code, result.stderr) == (0, "")
        return [json.loads(line) for line in result.stdout.splitlines()]

    return watch


def texts(events):
    return [event["text"] for event in events[1:]]


def test_first_line_is_the_group_as_it_is_and_ctrl_c_ends_with_0(town, watch, run_json):
    town.settled("a")
    (first,) = watch()
    assert (first.pop("event"), first.pop("at")) == ("status", JOINED)
    look = run_json("status", "orders")
    assert [look.pop(key) for key in ("leases_problem", "draining_since", "not_ranked")] == [
        "",
        {},
        {},
    ]
    assert list(look.pop("leases")) == ["a"]  # a watch asks for none
    assert first == look


def test_join_a_version_and_its_settling_are_told_in_order(town, watch):
    town.settled("a")
    size_2 = partial(Share, size=2, scheme="jump")
    events = watch(
        lambda: town.record("b", labels={"az": "eu"}),
        lambda: town.version(2, "a", "b", because=("joined b",)),
        lambda: town.record("a", shares=(size_2(0),), draining=("x", "y")),
        lambda: town.record("b", shares=(size_2(1),)),
        lambda: town.record("a", shares=(size_2(0),), draining=("y",)),
        lambda: town.record("a", shares=(size_2(0),)),
    )
    assert texts(events) == [
        "b joined",
        "version 2 because joined b · rank 1: - → b",
        "a has lost x, y (not released yet)",
        "a has released x",
        "a has released y",
        "settled at version 2",
    ]
    assert [event["settled"] for event in events] == [True, True, *[False] * 3, True, True]
    assert [event["version"] for event in events] == [1, 1, 2, 2, 2, 2, 2]
    revisions = [event["revision"] for event in events]
    assert revisions == sorted(revisions)
    assert events[1] == {
        "event": "joined",
        "at": JOINED,
        "revision": revisions[1],
        "text": "b joined",
        "member": "b",
        "phase": "active",
        "labels": {"az": "eu"},
        "version": 1,
        "settled": True,
    }
    assert events[2]["changed"]["ranks"] == [{"rank": 1, "before": None, "after": "b"}]
    assert (events[3]["event"], events[3]["roles"]) == ("draining", ["x", "y"])
    assert (events[4]["event"], events[4]["roles"]) == ("drained", ["x"])


def test_planned_leave_and_a_crash_are_told_apart(town, watch):
    town.settled("a", "b", "c")
    share = Share(0, 3, "jump")
    events = watch(
        lambda: town.record("a", shares=(share,), phase=LEAVING, draining=("x",)),
        lambda: town.crash("a"),
        lambda: town.crash("c"),
        lambda: town.crash("b"),
    )
    assert texts(events) == [
        "a is leaving",
        "a has lost x (not released yet)",
        "b coordinates",
        "a has left, and its claim on x has ended",
        "settled at version 1",
        "c is gone, without leaving first",
        "b is gone, without leaving first",
        "nobody coordinates",
    ]
    assert events[4]["draining"] == ["x"]
    assert events[-1]["member"] is None
    assert events[-1]["settled"] is False


def test_watch_tells_of_an_offer_once(town, watch):
    town.settled("a", "b")
    share, by = Share(0, 2, "jump"), {"handover_wait": 8.0}
    events = watch(
        lambda: town.record("a", shares=(share,), phase=Phase.OFFERING, leads_by=by),
        lambda: town.record("a", shares=(share,), phase=LEAVING, leads_by=by),
        lambda: town.crash("a"),
    )
    assert texts(events)[:3] == [
        "a is leaving; waits up to 8 s for a successor",
        "b coordinates",
        "a has left",
    ]


def test_member_that_came_back_under_its_name_is_told(town):
    town.settled("a")
    before = read_group(town.etcd, KEYS)
    town.crash("a")
    town.record("a")
    told = between(before, read_group(town.etcd, KEYS), False, False)
    assert [one.text for one in told] == ["a has rejoined, with a new session"]


def test_wishes_and_unreadable_keys_are_told_and_when_they_are_over(town, watch):
    town.settled("a")
    events = watch(
        lambda: town.write(KEYS.request("1"), codec.encode(Request(Wish.PIN, "x", "a"))),
        lambda: town.write(KEYS.version(2), b"?"),
        lambda: town.version(2, "a"),
    )
    assert texts(events) == [
        "asked for: pin x to a",
        "version 2 is not JSON",
        "versions/2 is not JSON",
        "version 2 because no cause given",
        "versions/2 has no problem any more",
        "settled at version 2",
    ]


def test_outage_is_told_once_and_its_end(town, watch):
    town.settled("a")
    silence = EtcdUnavailable("nobody answers")
    events = watch(lambda: town.faults.extend([silence] * 3), lambda: None)
    assert [(event["event"], event["text"]) for event in events[1:]] == [
        ("trouble", "nobody answers"),
        ("trouble", "etcd answers again"),
    ]
    assert [event["problem"] for event in events[1:]] == ["nobody answers", ""]


def test_after_a_compaction_or_a_restore_nothing_is_missed(town, watch):
    town.settled("a")
    backup = town.cluster.backup()

    def compact():
        for client in town.cluster.streams:
            client.client.cut()
        town.record("b")
        town.record("c")
        town.cluster.compact(town.cluster.store.revision)
        for stream in list(town.cluster.streams):
            stream.client.heal()

    events = watch(compact, lambda: None, lambda: town.cluster.restore_backup(backup), lambda: None)
    kinds = [(event["event"], event.get("member")) for event in events[1:]]
    assert kinds[:2] == [("joined", "b"), ("joined", "c")]
    assert kinds[2][0] == "trouble"
    assert sorted(kinds[3:]) == [("gone", "b"), ("gone", "c"), ("trouble", None)]


def versions_told(town, change):
    """Return the version events of a change that is seen as one."""
    before = read_group(town.etcd, KEYS)
    change()
    told = between(before, read_group(town.etcd, KEYS), True, True)
    return [(one.text, one.facts["skipped"]) for one in told if one.event == "version"]


@pytest.mark.parametrize(
    ("kept", "text", "skipped"),
    [
        (2, "", None),
        (3, " · version 2 was pruned unseen", [2, 2]),
        (18, " · versions 2 to 17 were pruned unseen", [2, 17]),
    ],
)
def test_watch_of_versions_pruned_unseen_marks_the_gap(town, kept, text, skipped):
    town.settled("a")

    def change():
        town.prune(1)
        town.version(kept, "a", because=("asked",))
        town.version(kept + 1, "a", because=("asked",))

    assert versions_told(town, change) == [
        (f"version {kept} because asked{text}", skipped),
        (f"version {kept + 1} because asked", None),
    ]


def test_watch_of_a_log_that_began_anew_marks_no_gap(town):
    town.settled("a")
    town.version(2, "a")
    town.version(3, "a")

    def change():
        town.prune(2, 3)
        for number in (1, 4):
            town.version(number, "b", because=("anew",))

    assert [skipped for _, skipped in versions_told(town, change)] == [None, None]


def test_watch_after_a_compaction_tells_which_versions_it_missed(town, watch):
    town.settled("a")

    def compact():
        for client in town.cluster.streams:
            client.client.cut()
        for number in range(2, 7):
            town.version(number, "a", because=("asked",))
        town.prune(1, 2, 3, 4)
        town.cluster.compact(town.cluster.store.revision)
        for stream in list(town.cluster.streams):
            stream.client.heal()

    events = [one for one in watch(compact, lambda: None) if one["event"] == "version"]
    assert [(one["number"], one["skipped"]) for one in events] == [(5, [2, 4]), (6, None)]


def test_unknown_group_may_be_waited_for(town, watch):
    events = watch(lambda: town.record("a"), options=["--wait"])
    assert (events[0]["version"], events[0]["members"]) == (0, [])
    assert texts(events) == ["a joined", "a coordinates"]


def test_error_before_the_first_list_ends_the_watch(town, run):
    town.settled("a")
    town.faults = [EtcdAuth("permission denied")]
    result = run("watch", "orders")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "rink: permission denied\n"


def test_nothing_of_a_watch_is_left_open(town, watch):
    town.settled("a")
    watch(lambda: town.record("b"))
    assert town.cluster.streams == []


# ── on a terminal ──


@pytest.fixture
def screen(town):
    """Return a live display, and a function for its text at 100 columns."""
    console = Console(
        file=io.StringIO(), width=100, height=24, force_terminal=True, markup=False,
        highlight=False, color_system=None,
    )  # fmt: skip
    live = LiveLog(console, "orders", Clock())

    def show():
        live.view = read_group(town.etcd, KEYS)
        with console.capture() as text:
            console.print(live.picture())
        return [line.rstrip() for line in text.get().splitlines()]

    return live, show


def test_live_view_has_the_group_below_a_rule(town, screen):
    _, show = screen
    town.settled("a", "b")
    lines = show()
    assert lines[0] == "─" * 100
    assert lines[1].startswith("orders  version 1 · 2 ranks · jump · a coordinates · settled")
    assert any(line.split()[:3] == ["0", "a", "active,"] for line in lines)


def test_group_larger_than_the_terminal_leaves_room_for_the_log(town, screen):
    _, show = screen
    town.settled(*(f"m{rank:02}" for rank in range(40)))
    lines = show()
    assert any("… and 28 more" in line for line in lines)
    assert len(lines) <= 24 - 3


def test_that_the_view_may_be_out_of_date_stays_visible(town, screen):
    live, show = screen
    town.settled("a")
    view = read_group(town.etcd, KEYS)
    live.happened(view, True, Happening("trouble", "no answer", {"problem": "no answer"}))
    assert show()[-1] == "this may be out of date: no answer"
    live.happened(view, True, Happening("trouble", "it answers again", {"problem": ""}))
    assert "out of date" not in "".join(show())


def test_line_of_the_log_has_the_time_and_escapes_names():
    text = line(Happening("joined", "a\x1b[2J joined", {}), JOINED).plain
    assert text == "10:11:12.345  a\\x1b[2J joined"

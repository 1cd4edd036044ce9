"""Test the flights' display, with and without a terminal.

It follows from the events.
"""

import io
import json

from common.display import LiveDisplay, PlainDisplay, make_display
from common.events import EventLog, Tail
from flights_demo.scene import Scene, draw, progress_line
from rich.console import Console


def scene_of(*events):
    scene = Scene(jobs=10)
    for at, (member, what, facts) in enumerate(events):
        scene.apply({"at": float(at), "member": member, "what": what, **facts})
    return scene


STARTED = ("onlooker", "started", {"target": "p1.1", "pid": 7, "generation": 1})
JOINED = ("p1.1", "joined", {})
RANKED = ("p1.1", "version", {"number": 1, "ranks": ["p1.1"], "because": ["p1.1 joined"]})
JOB = ("p1.1", "granted", {"role": "UA/2013-01-01", "token": 5})
CARRIER = ("p1.1", "granted", {"role": "carrier/UA", "token": 6})


def drawn(scene):
    console = Console(file=io.StringIO(), width=120)
    console.print(draw(scene))
    return console.file.getvalue()


def test_members_row_says_what_it_holds():
    text = drawn(scene_of(STARTED, JOINED, RANKED, JOB, CARRIER))
    row = next(line for line in text.splitlines() if "p1.1    7" in line)
    assert row.split()[1:] == ["p1.1", "7", "0", "running", "UA/2013-01-01", "0", "UA", "│"]


def test_member_without_a_rank_is_shown_as_waiting():
    assert "waiting" in drawn(scene_of(STARTED, JOINED))


def test_killed_member_holds_nothing():
    killed = ("onlooker", "killed", {"target": "p1.1"})
    scene = scene_of(STARTED, JOINED, RANKED, JOB, CARRIER, killed)
    member = scene.members["p1.1"]
    assert (member.state, member.job, member.carriers) == ("killed", "", set())


def test_older_version_read_late_does_not_bring_old_ranks_back():
    newer = ("p1.1", "version", {"number": 2, "ranks": ["p1.2"], "because": ["left"]})
    assert scene_of(STARTED, newer, RANKED).ranks == ["p1.2"]


def test_without_a_terminal_there_are_plain_lines_and_no_control_codes():
    console = Console(file=io.StringIO())
    with make_display(console, draw, progress_line) as display:
        assert isinstance(display, PlainDisplay)
        display.show(scene_of(STARTED, JOINED, RANKED))
    text = console.file.getvalue()
    assert "version 1: p1.1 (p1.1 joined)" in text
    assert "p1.1:0:running" in text
    assert "\x1b" not in text


def test_on_a_terminal_the_display_is_live():
    console = Console(file=io.StringIO(), force_terminal=True)
    with make_display(console, draw, progress_line) as display:
        assert isinstance(display, LiveDisplay)
        display.show(scene_of(STARTED))


def test_tail_of_a_half_written_line_waits_for_its_rest(tmp_path):
    """A tail reads each whole line once, and a half-written one later."""
    log = EventLog(tmp_path, "a")
    tail = Tail(tmp_path)
    log.write("joined")
    with (tmp_path / "b.jsonl").open("w") as half:
        half.write('{"at": 0, "what": "le')
    assert [event["what"] for event in tail.new()] == ["joined"]
    with (tmp_path / "b.jsonl").open("a") as half:
        half.write('ft"}\n')
    assert tail.new() == [{"at": 0, "what": "left"}]
    assert tail.new() == []
    log.close()
    assert json.loads((tmp_path / "a.jsonl").read_text())["member"] == "a"

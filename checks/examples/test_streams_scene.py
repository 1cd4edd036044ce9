"""Test the streams' display, with and without a terminal.

It follows from the notes.
"""

import io

from common.display import make_display
from rich.console import Console
from streams_demo.scene import Scene, draw, progress_line


def note(member, what, **facts):
    return {"member": member, "what": what, **facts}


def scene_of(*events):
    scene = Scene(legs=10, processors=("exact", "plain"))
    for at, event in enumerate(events):
        scene.apply({"at": float(at), **event})
    return scene


def granted(partition, processor="plain", member="w1.1", token=3):
    facts = {"processor": processor, "partition": partition, "token": token}
    return note(member, "granted", **facts)


STARTED = note("onlooker", "started", target="w1.1", pid=7, generation=1)
SENDER = note("onlooker", "started", target="sender", pid=8, generation=1)


def test_worker_runs_once_it_has_a_partition():
    scene = scene_of(STARTED)
    assert scene.members["w1.1"].state == "starting"
    assert scene_of(STARTED, granted(4)).members["w1.1"].state == "running"


def test_worker_has_what_it_was_granted_and_has_not_released():
    released = note("w1.1", "released", processor="plain", partition=4, token=3)
    scene = scene_of(STARTED, granted(4), granted(5), granted(5, "exact"), released)
    assert scene.members["w1.1"].held == {"plain": {5: 3}, "exact": {5: 3}}


def test_killed_worker_has_nothing():
    killed = note("onlooker", "killed", target="w1.1")
    assert scene_of(STARTED, granted(4), killed).members["w1.1"].held == {}


def test_work_in_hand_is_known_until_it_is_done():
    facts = {"processor": "plain", "batch": "1-0", "key": "N1"}
    working = note("w1.1", "working", lasts=0.03, **facts)
    scene = scene_of(STARTED)
    scene.apply({"at": 9.0, **working})
    worker = scene.members["w1.1"]
    assert worker.is_amid_work("plain", 9.02)
    assert not worker.is_amid_work("plain", 9.04)  # it may have been put out by then
    assert not worker.is_amid_work("exact", 9.02)
    scene.apply({"at": 9.01, **note("w1.1", "worked", **facts)})
    assert not worker.is_amid_work("plain", 9.02)


def test_refusals_are_counted_and_the_first_of_each_processor_is_told():
    refused = note("w1.1", "refused", processor="plain", partition=4, token=3, why="too late")
    scene = scene_of(STARTED, refused, refused)
    assert scene.members["w1.1"].refused == {"plain": 2}
    assert sum("too late" in text for _, text in scene.log) == 1


def test_sender_is_no_worker():
    scene = scene_of(STARTED, SENDER, note("sender", "sent", count=6))
    assert [worker.name for worker in scene.workers] == ["w1.1"]
    assert scene.sent == 6


def test_all_is_done_when_each_processor_is():
    scene = scene_of()
    scene.done = {"plain": 10, "exact": 9}
    assert not scene.all_done
    scene.done["exact"] = 10
    assert scene.all_done


def test_frame_shows_who_has_which_partitions():
    console = Console(file=io.StringIO(), width=120)
    console.print(draw(scene_of(STARTED, granted(11), granted(4), granted(2, "exact"))))
    row = next(line for line in console.file.getvalue().splitlines() if "w1.1    7" in line)
    assert row.split()[1:-1] == ["w1.1", "7", "running", "2", "4", "11"]


def test_without_a_terminal_there_are_plain_lines():
    console = Console(file=io.StringIO())
    scene = scene_of(STARTED, granted(4))
    with make_display(console, draw, progress_line) as display:
        display.show(scene)
    text = console.file.getvalue()
    assert progress_line(scene) in text
    assert "w1.1:running:0+1" in text, "and no emoji"
    assert "\x1b" not in text

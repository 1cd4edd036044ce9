"""Test the records of a program beside the sidecar.

No server is needed.
"""

import json

import pytest
from rollout_records import SaidRecords

ROLE = "role-1"


class Printed:
    """Write a node's folder, with the output of each pod's program."""

    def __init__(self, folder):
        self.folder = folder
        self.journal = folder / "journal.jsonl"
        self.journal.touch()
        self.records = SaidRecords(folder, lambda: [self.journal])

    def print(self, pod, *lines, end="\n"):
        log = self.folder / "pods" / f"shop_{pod}_0123abcd" / "member.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as file:
            file.write("\n".join(lines) + end)

    def log(self, pod, *lines):
        log = self.folder / "pods" / f"shop_{pod}_0123abcd" / "rink.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("\n".join(lines) + "\n")

    def note(self, **line):
        with self.journal.open("a") as file:
            file.write(json.dumps(line) + "\n")


@pytest.fixture
def printed(tmp_path):
    return Printed(tmp_path)


def test_records_of_a_handover_have_no_problem(printed):
    printed.print("old", f"100.000 gained {ROLE} 7", f"150.250 let go {ROLE} 7")
    printed.print("new", f"150.400 gained {ROLE} 9")
    judgement = printed.records.judge()
    assert judgement.problems == []
    assert judgement.moves() == {ROLE: 1}
    assert judgement.holders == {ROLE: "new"}
    (gap,) = judgement.gaps
    assert gap.seconds == pytest.approx(0.15)


def test_records_of_work_after_a_successor_began_are_an_overlap(printed):
    printed.print("old", f"100.000 gained {ROLE} 7", f"150.250 let go {ROLE} 7")
    printed.print("new", f"150.240 gained {ROLE} 9")
    (problem,) = printed.records.judge().problems
    assert problem == f"new gained {ROLE} while old held it, until 0.010 s later"


def test_records_of_a_token_that_does_not_grow_are_a_problem(printed):
    printed.print("old", f"100.000 gained {ROLE} 7", f"150.000 let go {ROLE} 7")
    printed.print("new", f"150.400 gained {ROLE} 7")
    assert "has token 7" in printed.records.judge().problems[0]


def test_records_of_a_dead_program_hold_nothing(printed):
    printed.print("old", f"100.000 gained {ROLE} 7")
    printed.note(what="ended", pod="old", container="rink", at=120.0)
    assert printed.records.judge().holders == {ROLE: "old"}
    printed.note(what="ended", pod="old", container="member", at=130.0)
    assert printed.records.judge().not_held([ROLE]) == [ROLE]


def test_records_pass_over_other_and_half_written_lines(printed):
    printed.print("old", "curl: (7) Failed to connect", f"100.000 gained {ROLE} 7")
    printed.print("old", f"150.000 let go {ROLE}", end="")
    assert printed.records.judge().holders == {ROLE: "old"}


GROUP = "INFO    rink: group 'banks':"


def test_records_read_joins_and_changes_of_rank_from_the_log(printed):
    printed.log(
        "old",
        "2026-11-29 17:52:10,031 INFO    rink.sidecar: the API is at http://127.0.0.1:8181",
        f"2026-11-29 17:52:11,672 {GROUP} joined as 'old', by etcd at http://h:2379",
        f"2026-11-29 17:52:11,679 {GROUP} version 1: no rank (of 1): started",
        f"2026-11-29 17:52:12,834 {GROUP} version 2: rank 2 of 3: joined old",
        f"2026-11-29 17:52:13,834 {GROUP} version 3: rank 2 of 3: changed pins",
    )
    lines = printed.records.lines()
    assert [(line.what, line.value) for line in lines] == [
        ("joined", None), ("rank", None), ("rank", 2)
    ]  # fmt: skip
    assert lines[2].at - lines[0].at == pytest.approx(1.162)
    assert printed.records.ranks() == {"old": 2}
    assert printed.records.changes(lines[0].at) == 1

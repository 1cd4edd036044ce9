"""Test the program that takes a backup of etcd into a member's volume."""

import hashlib
import io
import os
import runpy
import sys
from types import SimpleNamespace

import pytest
from manifests import ROOT

PROGRAM = ROOT / "deploy" / "etcd-restore" / "restore.py"
DATA = os.urandom(3 << 20)  # longer than one block
SNAPSHOT = DATA + hashlib.sha256(DATA).digest()


class Member:
    """Run the program on a volume, without time that passes.

    Attributes:
        on_look: called whenever the program looks for the snapshot and there is none.
    """

    def __init__(self, volume, monkeypatch):
        self.volume, self._monkeypatch = volume, monkeypatch
        self.on_look = self.seen = None
        monkeypatch.setenv("VOLUME", str(volume))
        monkeypatch.setattr("time.sleep", self._sleep)

    def _sleep(self, _):
        if not (self.volume / "snapshot.db").exists():
            self.on_look()

    def run(self, command):
        self._monkeypatch.setattr(sys, "argv", ["restore.py", command])
        runpy.run_path(str(PROGRAM), run_name="__main__")

    def take(self, snapshot):
        self._monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(snapshot)))
        self.run("take")

    @property
    def has(self):
        """Return the member's data, and the data beside it."""
        return {(path / "wal").read_text() for path in self.volume.glob("data*")}


@pytest.fixture
def member(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "wal").write_text("old")
    return Member(tmp_path, monkeypatch)


def test_data_is_moved_aside_when_the_snapshot_has_come(member):
    """A restore that is given up before must leave the member as it was."""

    def look():
        assert [path.name for path in member.volume.glob("data*")] == ["data"]
        member.take(SNAPSHOT)

    member.on_look = look
    member.run("wait")
    assert not (member.volume / "data").exists()
    assert member.has == {"old"}
    assert (member.volume / "snapshot.db").read_bytes() == SNAPSHOT


def test_pod_that_starts_again_waits_for_the_snapshot_again(member):
    member.on_look = lambda: member.take(SNAPSHOT)
    member.run("wait")
    (aside,) = member.volume.glob("data-until-*")
    aside.rename(member.volume / "data-first")  # the second one has the name of the same second
    (member.volume / "data").mkdir()
    (member.volume / "data" / "wal").write_text("restored")
    newer = SNAPSHOT[:-32] + b"more"
    newer += hashlib.sha256(newer).digest()
    member.on_look = lambda: member.take(newer)
    member.run("wait")
    assert (member.volume / "snapshot.db").read_bytes() == newer
    assert member.has == {"old", "restored"}


@pytest.mark.parametrize(
    ("snapshot", "said"),
    [
        (b"", "stdin is empty"),
        (b"short", "not whole"),
        (SNAPSHOT[:-512], "not whole"),
        (DATA[1:] + SNAPSHOT[-32:], "not whole"),
    ],
)
def test_snapshot_that_is_not_whole_is_refused_and_may_come_again(member, snapshot, said):
    """A broken connection of kubectl looks like the end of the file."""

    def look():
        with pytest.raises(SystemExit, match=said):
            member.take(snapshot)
        assert not (member.volume / "snapshot.db").exists()
        member.take(SNAPSHOT)

    member.on_look = look
    member.run("wait")
    assert (member.volume / "snapshot.db").read_bytes() == SNAPSHOT


def test_snapshot_is_refused_while_no_member_waits_for_it(member):
    with pytest.raises(SystemExit, match="does not wait"):
        member.take(SNAPSHOT)

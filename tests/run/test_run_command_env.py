"""Test the command's environment, file, cgroup and exit status."""

from __future__ import annotations

import errno
import os
import signal
import types
from pathlib import Path

import pytest

from rink.mount_table import file_system_of, is_in_memory, mounts
from rink.run import cgroup, command_guard
from rink.run.command_env import RoleFile, environment_of
from rink.run.exit_codes import ExitStatus
from rink.run.run_settings import RunSettings
from rink.run.supervisor import Restarts

MOUNTS = r"""21 1 254:0 / / rw,relatime - ext4 /dev/root rw
22 21 0:20 / /dev rw - devtmpfs dev rw
23 22 0:21 / /dev/shm rw,nosuid shared:1 - tmpfs tmpfs rw
24 21 0:22 / /run rw - tmpfs tmpfs rw
25 24 254:1 / /run/user\0401 rw - ext4 /dev/vdb rw
30 21 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw
"""


@pytest.fixture
def mounted(tmp_path, monkeypatch):
    """Set the mounts that this process sees."""

    def mounted(text):
        path = tmp_path / "mountinfo"
        path.write_text(text)
        monkeypatch.setattr("rink.mount_table.MOUNTS", path)
        return path

    return mounted


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/dev/shm", "tmpfs"),
        ("/dev/shm/a/b", "tmpfs"),
        ("/run/user", "tmpfs"),
        ("/run/user 1", "ext4"),
        ("/run/user 1/x", "ext4"),
        ("/tmp", "ext4"),
        ("/dev", "devtmpfs"),
        ("/devil", "ext4"),
    ],
)
def test_file_system_is_that_of_the_nearest_mount(mounted, folder, kind):
    mounted(MOUNTS)
    assert file_system_of(Path(folder)) == kind
    assert is_in_memory(Path(folder)) is (kind == "tmpfs")


def test_file_system_is_that_of_the_mount_on_top(mounted):
    mounted(MOUNTS + "40 23 254:2 / /dev/shm rw - ext4 /dev/vdc rw\n")
    assert file_system_of(Path("/dev/shm")) == "ext4"


def test_environment_has_the_role_and_no_way_to_etcd():
    outer = {
        "PATH": "/bin", "RINK_ETCD": "x", "RINK_ETCD_USER": "x", "RINK_ETCD_PASSWORD": "x",
        "RINK_TOKEN_FILE": "x", "RINK_SIDECAR_TOKEN_FILE": "x", "RINK_REDIS_PASSWORD": "x",
        "RINK_TOKEN": "old", "RINK_FILE": "/old", "RINK_APP": "stays", "RINK_ETCDX": "stays",
    }  # fmt: skip
    role = types.SimpleNamespace(name="r", rank=0, token=7)
    inner = environment_of(outer, "g", role, "")
    assert inner == {
        "PATH": "/bin", "RINK_APP": "stays", "RINK_ETCDX": "stays",
        "RINK_GROUP": "g", "RINK_ROLE": "r", "RINK_RANK": "0", "RINK_TOKEN": "7",
    }  # fmt: skip
    with_file = environment_of(outer, "g", role, "/f")
    assert with_file["RINK_FILE"] == "/f"


def test_role_file_lies_nowhere_but_on_a_tmpfs(tmp_path, mounted):
    mounts = mounted(f"1 1 0:1 / {tmp_path} rw - ext4 x rw\n")
    file = RoleFile([tmp_path / "missing", tmp_path])
    assert not file.is_possible
    file.write(7, 10)
    assert file.path == ""
    file.clear()
    assert list(tmp_path.iterdir()) == [mounts]


def test_role_file_is_one_line_that_is_valid_between_its_times(tmp_path, mounted):
    """The folder exists only while a command runs.

    So a killed `rink run` that waited leaves no folder behind.
    """
    mounts = mounted(f"1 1 0:1 / {tmp_path} rw - tmpfs x rw\n")
    file = RoleFile([tmp_path])
    assert file.is_possible
    assert list(tmp_path.iterdir()) == [mounts]
    before = command_guard.now_ms()
    file.write(7, before + 60_000)
    token, written, until = map(int, Path(file.path).read_text().split())
    assert token == 7
    assert before <= written <= command_guard.now_ms() < until
    assert Path(file.path).stat().st_mode & 0o777 == 0o644
    file.clear()
    assert list(tmp_path.iterdir()) == [mounts]


@pytest.mark.parametrize(
    ("own", "root", "expected"),
    [
        ("/", "/", "/sys/fs/cgroup"),
        ("/a/b c", "/", "/sys/fs/cgroup/a/b c"),
        ("/pods/p1/x", "/pods/p1", "/sys/fs/cgroup/x"),
        ("/other", "/pods/p1", None),
    ],
)
def test_cgroup_is_found_below_its_mount(mounted, own, root, expected):
    mounted(f"1 1 0:1 / / rw - ext4 x rw\n30 1 0:3 {root} /sys/fs/cgroup rw - cgroup2 c rw\n")
    found = cgroup.own_path(f"4:memory:/v1\n0::{own}\n", mounts())
    assert found == (expected and Path(expected))


def test_cgroup_of_version_1_alone_is_none(mounted):
    mounted(MOUNTS)
    assert cgroup.own_path("4:memory:/x\n", mounts()) is None
    mounted("1 1 0:1 / / rw - ext4 x rw\n")
    assert cgroup.own_path("0::/x\n", mounts()) is None


def test_cgroup_of_root_without_a_mark_is_not_delegated(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroup, "MARKS", ("user.rink-test-none",))
    assert not cgroup.is_delegated(tmp_path)  # no cgroup.kill
    (tmp_path / "cgroup.kill").touch()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert not cgroup.is_delegated(tmp_path)
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner)
    assert cgroup.is_delegated(tmp_path) is (owner != 0)


@pytest.mark.parametrize(
    ("status", "outcome", "text"),
    [
        (0, ExitStatus(), "code 0"),
        (7 << 8, ExitStatus(7), "code 7"),
        (signal.SIGTERM, ExitStatus(signal=signal.SIGTERM), "SIGTERM"),
        (signal.SIGSEGV | 0x80, ExitStatus(signal=signal.SIGSEGV), "SIGSEGV"),
        (37, ExitStatus(signal=37), "signal 37"),
    ],
)
def test_outcome_is_that_of_the_command(status, outcome, text):
    assert ExitStatus.of(status) == outcome
    assert str(outcome) == text


def test_restarts_double_their_pause_up_to_a_minute():
    restarts = Restarts()
    assert [restarts.pause_after(0.1) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert restarts.pause_after(61) == 1
    assert restarts.pause_after(0.1) == 2


def test_leave_is_as_long_as_its_waits():
    settings = RunSettings(group="g", role="r", command=("true",), handover_wait=20, grace=5)
    assert settings.leaves_within_s == 45


def test_role_file_on_a_full_tmpfs_keeps_the_earlier_end(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("rink.run.command_env.is_in_memory", lambda *_: True)
    file = RoleFile([tmp_path])
    file.write(7, 1_000)
    before = Path(file.path).read_text()

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fail)
    file.write(7, 2_000)
    assert Path(file.path).read_text() == before
    assert "an earlier end: No space left on device" in caplog.text

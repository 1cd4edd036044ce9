"""Test files of ends: names, contents, and refused folders."""

import errno
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from rink.cli.held import held
from rink.errors import ConfigError
from rink.sidecar import role_files as module
from rink.sidecar.clock import now_ms
from rink.sidecar.role_files import FOLDER, Files, file_name, is_valid


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder that counts as a tmpfs."""
    monkeypatch.setattr(module, "_file_system", lambda _: "tmpfs")
    return tmp_path


@pytest.mark.parametrize(
    ("role", "name"),
    [
        ("leader", "leader"),
        ("BTC/ETH", "BTC%2FETH"),
        ("../x", "%2E%2E%2Fx"),
        (".", "%2E"),
        ("a b", "a%20b"),
        ("é", "%C3%A9"),
        ("100%", "100%25"),
        ("A-Za_z09", "A-Za_z09"),
    ],
)
def test_file_name_is_percent_encoded(role, name):
    assert file_name(role) == name


def test_file_name_of_a_long_role_is_a_hash_of_its_own():
    long = "é" * 40
    assert file_name(long).startswith("sha256.")
    assert file_name(long) != file_name(long + "é")
    assert file_name("x" * 200) == "x" * 200
    assert file_name("x" * 201).startswith("sha256.")


@pytest.mark.parametrize(
    ("line", "valid"),
    [
        ("7 100 200", True),
        ("7 150 200", True),
        ("7 151 200", False),
        ("7 100 150", False),
        ("7 100 151", True),
        ("", False),
        ("7 100", False),
        ("7 100 200 300", False),
        ("x 100 200", False),
        ("-7 100 200", False),
    ],
)
def test_line_is_valid_from_its_writing_to_its_end(line, valid):
    assert is_valid(line, 150) is valid


def test_file_is_written_removed_and_cleared(folder):
    files = Files(folder, lambda: 100)
    files.write("BTC/ETH", 7, 200)
    assert (folder / FOLDER / "BTC%2FETH").read_text() == "7 100 200\n"
    files.write("BTC/ETH", 7, 300)
    assert (folder / FOLDER / "BTC%2FETH").read_text() == "7 100 300\n"
    files.remove("BTC/ETH")
    files.remove("BTC/ETH")
    assert list((folder / FOLDER).iterdir()) == []
    files.write("é" * 100, 8, 200)
    (path,) = (folder / FOLDER).iterdir()
    assert path.read_text() == f"8 100 200\n{'é' * 100}\n"
    files.clear()
    assert list((folder / FOLDER).iterdir()) == []


def test_file_is_readable_by_others_whatever_the_umask_is(folder):
    before = os.umask(0o077)
    try:
        Files(folder, lambda: 100).write("leader", 7, 200)
    finally:
        os.umask(before)
    assert (folder / FOLDER).stat().st_mode & 0o777 == 0o755
    assert (folder / FOLDER / "leader").stat().st_mode & 0o777 == 0o644


def test_files_of_an_earlier_life_are_removed_at_the_start(folder):
    (folder / FOLDER).mkdir()
    (folder / FOLDER / "leader").write_text("7 1 99999999999999\n")
    Files(folder)
    assert list((folder / FOLDER).iterdir()) == []


def test_folder_that_is_a_link_is_refused(folder, tmp_path_factory):
    (folder / FOLDER).symlink_to(tmp_path_factory.mktemp("other"))
    with pytest.raises(ConfigError, match="held"):
        Files(folder)


def test_folder_that_others_may_write_is_refused(folder):
    (folder / FOLDER).mkdir()
    (folder / FOLDER).chmod(0o777)
    with pytest.raises(ConfigError, match="nobody else may write"):
        Files(folder)


def test_folder_of_another_sidecar_is_refused_and_kept(folder):
    first = Files(folder, lambda: 100)
    first.write("leader", 7, 200)
    with pytest.raises(ConfigError, match="another sidecar"):
        Files(folder)
    assert (folder / FOLDER / "leader").exists()
    first.close()
    Files(folder).close()
    assert list((folder / FOLDER).iterdir()) == []


def test_full_folder_is_logged_once_a_minute(folder, caplog, monkeypatch):
    now = [100]
    files = Files(folder, lambda: now[0])

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.os, "rename", full)
    for _ in range(3):
        files.write("leader", 7, 200)
    assert len(caplog.messages) == 1
    assert "cannot write leader" in caplog.text
    now[0] += 60_000
    files.write("leader", 7, 200)
    assert len(caplog.messages) == 2
    assert "2 more" in caplog.messages[1]
    files.close()


def test_folder_in_place_of_a_file_is_refused_at_the_start(folder):
    (folder / FOLDER / "leader").mkdir(parents=True)
    for _ in range(2):  # the first one must not keep the lock
        with pytest.raises(ConfigError, match="cannot remove held/leader: Is a directory"):
            Files(folder)


def test_folder_in_place_of_a_file_is_logged_and_keeps_no_other_role(folder, caplog):
    """A program of the same user may make a folder at any time."""
    files = Files(folder, lambda: 100)
    (folder / FOLDER / "leader").mkdir()
    (folder / FOLDER / f".{os.getpid()}.1").mkdir()
    files.write("leader", 7, 200)  # its temporary file cannot be made
    files.write("leader", 7, 200)
    files.write("other", 8, 200)
    assert (folder / FOLDER / "other").read_text() == "8 100 200\n"
    files.remove("leader")
    files.remove("other")
    assert not (folder / FOLDER / "other").exists()
    files.clear()
    assert len(caplog.messages) == 1


def test_file_that_cannot_be_removed_is_named(folder, caplog):
    files = Files(folder, lambda: 100)
    (folder / FOLDER / "leader").mkdir()
    files.remove("leader")
    assert caplog.messages == [f"cannot remove leader from {folder}: Is a directory"]


def test_folder_that_is_no_tmpfs_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_file_system", lambda _: "ext4")
    with pytest.raises(ConfigError, match="on ext4, but files of ends must not survive"):
        Files(tmp_path)


def test_file_system_of_this_machine_is_recognised():
    assert module._file_system(Path("/proc")) == "proc"
    with pytest.raises(ConfigError, match="No such file"):
        module._file_system(Path("/no/such/folder"))


def test_link_in_place_of_a_file_is_replaced_and_not_followed(folder, tmp_path_factory):
    files = Files(folder, lambda: 100)
    other = tmp_path_factory.mktemp("other") / "precious"
    other.write_text("precious")
    (folder / FOLDER / "leader").symlink_to(other)
    files.write("leader", 7, 200)
    assert other.read_text() == "precious"
    assert (folder / FOLDER / "leader").read_text() == "7 100 200\n"


def test_held_prints_the_token_of_a_role_that_is_held(folder):
    files = Files(folder)
    files.write("BTC/ETH", 7, now_ms() + 60_000)
    result = CliRunner().invoke(held, ["BTC/ETH", "--files", os.fspath(folder)])
    assert (result.exit_code, result.output) == (0, "7\n")


@pytest.mark.parametrize(("until", "says"), [(None, "there is no file"), (1, "its end has passed")])
def test_held_exits_with_3_where_a_role_is_not_held(folder, until, says):
    files = Files(folder)
    if until is not None:
        files.write("leader", 7, until)
    result = CliRunner().invoke(held, ["leader", "--files", os.fspath(folder)])
    assert result.exit_code == 3
    assert says in result.output

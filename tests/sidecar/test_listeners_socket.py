"""Test who may use a unix socket, and the socket of an earlier life."""

import contextlib
import os
import socket
import stat
from pathlib import Path

import pytest

from rink.errors import ConfigError
from rink.sidecar.listeners import Address, _check_folder, listen

GROUP = 61_234 if os.getuid() == 0 else os.getgid()
"""A group that this user may give to a folder. As root, it is a number without a name."""


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "api" / "socket"


@pytest.fixture
def opened():
    """Listen, and close at the end."""
    listeners = []

    def open_(path, group=None):
        listeners.append(listen(Address(path=str(path)), group))
        return listeners[-1]

    yield open_
    for one in listeners:
        one.close()


def test_socket_without_group_is_its_users_only(path, opened):
    opened(path)
    assert (mode_of(path.parent), mode_of(path)) == (0o700, 0o600)


def test_socket_group_may_be_a_number_without_a_name(path, opened):
    """A pod's fsGroup is a number without a name in the image."""
    opened(path, str(GROUP))
    assert (path.parent.stat().st_gid, path.stat().st_gid) == (GROUP, GROUP)
    assert (mode_of(path.parent), mode_of(path)) == (0o710, 0o660)


@pytest.mark.parametrize("group", [None, str(GROUP)])
def test_socket_folder_in_a_volume_of_an_fs_group_is_taken_again(tmp_path, opened, group):
    """The volume has mode 2777, so its folders have the setgid bit."""
    tmp_path.chmod(0o2777)
    path = tmp_path / "api" / "socket"
    opened(path, group).close()
    opened(path, group)


@pytest.mark.parametrize(
    ("mode", "is_refused"),
    [(0o710, False), (0o750, False), (0o2710, False), (0o770, True), (0o711, True), (0o700, True)],
)
def test_socket_folder_of_the_group_is_entered_but_not_written(path, opened, mode, is_refused):
    """A process that may write the folder could replace the socket.

    It could then read every grant.
    """
    path.parent.mkdir()
    os.chown(path.parent, -1, GROUP)
    path.parent.chmod(mode)
    refused = pytest.raises(ConfigError, match=f"mode {mode:o}.*make it 0710")
    with refused if is_refused else contextlib.nullcontext():
        opened(path, str(GROUP))


def test_socket_folder_of_another_group_is_refused(path, monkeypatch):
    path.parent.mkdir(mode=0o710)
    found = list(path.parent.stat())
    found[stat.ST_GID] = GROUP + 1
    monkeypatch.setattr(Path, "stat", lambda *_, **__: os.stat_result(found))
    with pytest.raises(ConfigError, match=f"of group {GROUP + 1}.*of group {GROUP}"):
        _check_folder(path.parent, GROUP)


def test_link_in_place_of_a_new_socket_folder_is_not_followed(path, opened, monkeypatch):
    other = path.parents[1] / "other"
    other.mkdir(mode=0o700)
    monkeypatch.setattr(Path, "mkdir", lambda made, **_: made.symlink_to(other))
    with pytest.raises(ConfigError, match="cannot listen"):
        opened(path, str(GROUP))
    assert mode_of(other) == 0o700


def test_link_in_place_of_a_new_socket_is_not_followed(path, opened, monkeypatch):
    other = path.parents[1] / "other"
    other.touch(mode=0o600)

    class Swapped(socket.socket):
        def bind(self, address):
            super().bind(address)
            path.unlink()
            path.symlink_to(other)

    monkeypatch.setattr(socket, "socket", Swapped)
    opened(path, str(GROUP))
    assert mode_of(other) == 0o600
    assert other.stat().st_gid == os.getgid()


def test_socket_group_unknown_name_is_refused(path, opened):
    with pytest.raises(ConfigError, match="no group 'nosuch'"):
        opened(path, "nosuch")


def test_socket_left_by_a_dead_process_is_replaced(path, opened):
    opened(path).close()
    assert path.is_socket()
    opened(path)
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(path))


def test_socket_that_answers_is_not_taken(path, opened):
    opened(path)
    with pytest.raises(ConfigError, match="another process answers"):
        opened(path)


def test_socket_in_a_folder_that_others_may_write_is_refused(tmp_path, opened):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match="make it 0700"):
        opened(folder / "socket")


@pytest.mark.parametrize(("owner", "is_refused"), [(0, False), (61_234, True)])
def test_socket_folder_of_another_user_is_refused(path, monkeypatch, owner, is_refused):
    """The owner could replace the socket. Root can do so anywhere."""
    path.parent.mkdir(mode=0o700)
    found = list(path.parent.stat())
    found[stat.ST_UID] = owner
    monkeypatch.setattr(Path, "stat", lambda *_, **__: os.stat_result(found))
    refused = pytest.raises(ConfigError, match="belongs to user 61234")
    with refused if is_refused else contextlib.nullcontext():
        _check_folder(path.parent, None)

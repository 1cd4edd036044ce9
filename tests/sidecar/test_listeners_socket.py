"""A unix socket: who may use it, and what is left of an earlier life."""

import contextlib
import os
import socket
import stat
from pathlib import Path

import pytest

from rink.errors import ConfigError
from rink.sidecar.listeners import Address, _check_folder, listen


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
    """A pod's fsGroup is a number that the image does not know by name."""
    number = 61_234 if os.getuid() == 0 else os.getgid()
    opened(path, str(number))
    assert (path.parent.stat().st_gid, path.stat().st_gid) == (number, number)
    assert (mode_of(path.parent), mode_of(path)) == (0o710, 0o660)


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
    """Its owner could replace the socket. Root can do so anywhere."""
    path.parent.mkdir(mode=0o700)
    found = list(path.parent.stat())
    found[stat.ST_UID] = owner
    monkeypatch.setattr(Path, "stat", lambda *_, **__: os.stat_result(found))
    refused = pytest.raises(ConfigError, match="belongs to user 61234")
    with refused if is_refused else contextlib.nullcontext():
        _check_folder(path.parent, None)

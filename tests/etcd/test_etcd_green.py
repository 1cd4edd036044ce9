"""Check which modules of gevent and eventlet freeze threads."""

import sys
from types import SimpleNamespace

import pytest
from grpc._cython import cygrpc

from rink.errors import ConfigError
from rink.etcd.green_threads import refuse_green_threads


@pytest.fixture
def patched(monkeypatch):
    """Pretend that a library has replaced some of the standard modules."""

    def patch(library, *modules, init_gevent=False):
        stub = SimpleNamespace(
            is_object_patched=lambda module, _: module in modules,  # gevent's
            is_monkey_patched=lambda module: module in modules,  # eventlet's
        )
        where = {"gevent": "gevent.monkey", "eventlet": "eventlet.patcher"}[library]
        monkeypatch.setitem(sys.modules, where, stub)
        monkeypatch.setattr(cygrpc, "g_gevent_activated", init_gevent)

    return patch


def test_green_threads_without_a_library_are_fine(monkeypatch):
    monkeypatch.delitem(sys.modules, "gevent.monkey", raising=False)
    monkeypatch.delitem(sys.modules, "eventlet.patcher", raising=False)
    refuse_green_threads()


@pytest.mark.parametrize(
    ("library", "modules", "init_gevent"),
    [
        ("gevent", [], False),
        ("gevent", ["socket"], False),
        ("gevent", ["threading", "queue"], True),
        ("eventlet", ["socket"], False),
    ],
)
def test_green_threads_that_do_not_freeze_are_fine(patched, library, modules, init_gevent):
    patched(library, *modules, init_gevent=init_gevent)
    refuse_green_threads()


@pytest.mark.parametrize("modules", [["threading"], ["threading", "queue"]])
def test_gevent_threads_without_init_are_refused(patched, modules):
    patched("gevent", *modules)
    with pytest.raises(ConfigError, match=r"gevent has replaced `threading`") as raised:
        refuse_green_threads()
    text = str(raised.value)
    assert "grpc.experimental.gevent" in text
    assert "init_gevent()" in text
    assert "process of its own" in text
    assert "every role is lost" in text


@pytest.mark.parametrize(
    ("modules", "init_gevent", "says"),
    [
        (["queue"], False, "has replaced `queue` but not `threading`"),
        (["queue"], True, "has replaced `queue` but not `threading`"),
        (["threading"], True, "has replaced `threading` but not `queue`"),
    ],
)
def test_gevent_half_of_threads_is_refused(patched, modules, init_gevent, says):
    patched("gevent", *modules, init_gevent=init_gevent)
    with pytest.raises(ConfigError, match=says):
        refuse_green_threads()


def test_eventlet_threads_are_refused_with_init_gevent_too(patched):
    patched("eventlet", "thread", init_gevent=True)
    with pytest.raises(ConfigError, match="eventlet has replaced `threading`") as raised:
        refuse_green_threads()
    assert "monkey_patch(thread=False)" in str(raised.value)

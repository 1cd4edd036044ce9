"""Refuse threads of gevent or eventlet if gRPC would wait for ever (R6).

Both libraries can replace the standard modules by ones that run all "threads" as greenlets on one
thread. gRPC waits in C, where no greenlet yields. So its first answer is never read, and the
process hangs in `join()`. Tried with gevent 26.9, eventlet 0.41 and grpcio 1.85:

    replaced                            result
    socket, ssl, select, time, os …     works: gRPC and the engine wait in none of them
    gevent: threading                   hangs
    gevent: queue alone                 the engine's threads end with LoopExit
    gevent: threading and queue         works after gRPC's `init_gevent()`, otherwise hangs
    eventlet: threading                 hangs; gRPC does not support eventlet

This module imports neither library. If nobody has imported them, nothing is replaced.
"""

from __future__ import annotations

import sys

from grpc._cython import cygrpc  # type: ignore[attr-defined]  # not in its stubs

from rink.errors import ConfigError

_ELSEWHERE = "Better: run Rink in a process of its own, without greenlets."


def refuse_green_threads() -> None:
    """Raise ConfigError if gevent or eventlet has replaced needed threads."""
    eventlet, gevent = sys.modules.get("eventlet.patcher"), sys.modules.get("gevent.monkey")
    if eventlet is not None and eventlet.is_monkey_patched("thread"):
        raise ConfigError(
            "eventlet has replaced `threading`: gRPC's threads do not yield to it, so join() would "
            f"never return. Write eventlet.monkey_patch(thread=False). {_ELSEWHERE}"
        )
    if gevent is None:
        return
    threads = gevent.is_object_patched("threading", "get_ident")
    queues = gevent.is_object_patched("queue", "SimpleQueue")
    if queues and not threads:
        raise ConfigError(
            "gevent has replaced `queue` but not `threading`: Rink's threads would end with "
            f"LoopExit. Write monkey.patch_all(thread=False, queue=False). {_ELSEWHERE}"
        )
    if threads and not (queues and _grpc_yields()):
        raise ConfigError(
            f"gevent has replaced `threading`{'' if queues else ' but not `queue`'}: gRPC's "
            "threads do not yield to it, so join() would never return. Either write "
            "monkey.patch_all(thread=False, queue=False); or write monkey.patch_all() and then "
            "`import grpc.experimental.gevent as g; g.init_gevent()`, before rink.Session(...). "
            "The latter has a cost: while one greenlet computes, no lease is renewed, and at the "
            f"deadline every role is lost. {_ELSEWHERE}"
        )


def _grpc_yields() -> bool:
    """Return whether gRPC's `init_gevent()` was called, by gRPC's own flag."""
    return bool(getattr(cygrpc, "g_gevent_activated", False))

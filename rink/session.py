"""Share a connection and a keepalive stream among any number of groups."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from typing import Any, NoReturn, Self

from rink.arguments import check_seconds
from rink.core import events as ev
from rink.core.keys import Keys
from rink.core.member import MemberSettings
from rink.engine.callbacks import Listeners
from rink.engine.caller_context import owns
from rink.engine.clock import SYSTEM, Clock
from rink.engine.engine import Engine, mark_forked
from rink.engine.lease_renewal import LeaseRenewal
from rink.engine.request_threads import RequestThreads
from rink.errors import (
    ClosedError,
    ConfigError,
    ForkedProcessError,
    RinkError,
    UsageError,
    WrongThreadError,
)
from rink.etcd.api import Etcd
from rink.etcd.client import Client
from rink.etcd.green_threads import refuse_green_threads
from rink.etcd.server_versions import advice
from rink.report_interval import REPORT_INTERVAL_S
from rink.settings import check_endpoints, check_prefix, check_ttl
from rink.with_statements import PlainWith

log = logging.getLogger("rink")

EXIT_TIMEOUT_S = 5.0
"""Longest leave when the interpreter exits with open sessions, in seconds."""


class BaseSession:
    """Share one connection to etcd among groups, on both faces.

    Nothing is opened before the first group is joined.

    Args:
        endpoints: one endpoint, a comma-separated str or a list of them. None means `RINK_ETCD`
            from the environment, or else `http://127.0.0.1:2379`. An `etcd3` client of the
            application is also accepted, and its channel is then used.
        ttl: seconds that etcd keeps a member that does not renew; 2 or more, rounded up.
        margin: seconds before the earliest end of the lease at which every role is lost. None means
            a tenth of the TTL that etcd grants, at least 0.5.
        prefix: the beginning of every key.
        user: etcd user, with `password`.
        password: etcd password.
        ca: path of the certificate authority's PEM file, for `https://` endpoints. Files of
            certificates are read again for each new connection, so they may be rotated.
        cert: path of the client's certificate, with `key`.
        key: path of the client's private key.
        timeout: seconds for each request to etcd, for all endpoints together.
        clock: the clock for time and waits; `rink.testing.virtual` passes its own.

    Raises:
        ConfigError: a setting cannot be used; the message names it.
    """

    def __init__(
        self,
        endpoints: Any = None,
        *,
        ttl: float = 20.0,
        margin: float | None = None,
        prefix: str = "rink/",
        user: str | None = None,
        password: str | None = None,
        ca: str | None = None,
        cert: str | None = None,
        key: str | None = None,
        timeout: float = 5.0,
        clock: Clock = SYSTEM,
    ) -> None:
        self.ttl, self.margin = check_ttl(ttl, margin)
        self.margin_set = None if margin is None else self.margin
        self.prefix = check_prefix(prefix)
        self.clock = clock
        timeout = check_seconds("timeout", timeout)
        if timeout == 0:
            raise ConfigError("timeout=0 would let no request succeed; give a few seconds")
        if callable(getattr(endpoints, "keepalives", None)):
            if clock is SYSTEM and getattr(endpoints, "is_virtual", False):
                raise ConfigError(
                    f"{endpoints!r} is in virtual time, and this session would be in real time: "
                    "pass clock=rink_time.clock, the clock of the same VirtualTime"
                )
            self.etcd: Etcd = endpoints  # an etcd of rink.testing, or a client made by hand
        elif type(endpoints).__module__.partition(".")[0] == "etcd3":
            self.etcd = Client.from_etcd3(endpoints, timeout=timeout, clock=clock.now)
        else:
            self.etcd = Client(
                check_endpoints(endpoints),
                timeout=timeout,
                user=user,
                password=password,
                ca=ca,
                cert=cert,
                key=key,
                clock=clock.now,
            )
        self._request_threads = RequestThreads(clock)
        self._read_threads = RequestThreads(clock, "rink-read")
        self._lease_renewal = LeaseRenewal(self.etcd, clock)
        self._engines: list[Engine] = []
        self._lock = threading.RLock()  # it knows its owner, so an interrupted call is noticed
        self._closed = False
        self._is_ended = False
        self._pid = os.getpid()

    @property
    def is_live(self) -> bool:
        """Return whether every joined group's deadline lies ahead.

        Without a joined group it is True.
        """
        self._refuse_fork()
        now = self.clock.now()
        joined = [engine for engine in self._engines if engine.failure or not engine.left.is_set()]
        return not self._closed and all(now < engine.table.deadline for engine in joined)

    def _make_engine(self, group: str, settings: MemberSettings, listeners: Listeners) -> Engine:
        """Make the engine of one group for a face, without starting it."""
        self._refuse_fork()
        if isinstance(self.etcd, Client):  # an etcd in memory has no gRPC to wait for
            refuse_green_threads()
        return Engine(
            self.etcd,
            Keys.of(self.prefix, group),
            settings,
            clock=self.clock,
            request_threads=self._request_threads,
            read_threads=self._read_threads,
            lease_renewal=self._lease_renewal,
            listeners=listeners,
            group=group,
        )

    def _start_engine(self, engine: Engine) -> None:
        """Start an engine for a face. A close of the session leaves its group."""
        try:
            self._add(engine)
            self._lease_renewal.start()
            engine.start()
        except BaseException:  # also Ctrl-C: nobody may wait for an engine that never began
            engine.abandon()
            raise

    def _add(self, engine: Engine) -> None:
        self._refuse_interrupted()
        with self._lock:
            if self._closed:
                raise ClosedError("the session has been closed; open a new one")
            if not self._engines:
                self._request_threads.submit(self._look_at_version)
            self._engines = [entry for entry in self._engines if not entry.left.is_set()]
            self._engines.append(engine)
            _joined.add(self)

    def _look_at_version(self) -> None:
        """Warn of an etcd version that can break a promise of Rink.

        This warns once per process and version. For its own etcd, `rink dev` warns itself.
        """
        if not isinstance(self.etcd, Client):
            return
        try:
            text = advice(self.etcd.version())
            if text is None or text in _advised or self.etcd.is_of_rink_dev():
                return
        except RinkError:
            return  # the join fails with this error, too
        if text not in _advised:  # another session may have warned meanwhile
            _advised.add(text)
            log.warning("%s", text)

    def _begin_close(self, release_within: float | None = None) -> list[Engine]:
        """Begin to leave every group, and return the engines to wait for."""
        self._refuse_interrupted()
        for engine in self._engines:
            engine.refuse_own_thread("close()")
        with self._lock:
            self._closed = True
            engines = [engine for engine in self._engines if not engine.left.is_set()]
        for engine in engines:
            engine.post(ev.LeaveAsked(release_within=release_within))
        return engines

    def _end_close(self) -> None:
        """Close the connection, after every group was left or given up."""
        for engine in self._engines:
            engine.stop()
        self._lease_renewal.close()
        self._request_threads.close()
        self._read_threads.close()
        self.etcd.close()
        self._is_ended = True
        _joined.discard(self)

    @property
    def _is_over(self) -> bool:
        """Return whether the session was closed, or belongs to the parent process."""
        return os.getpid() != self._pid or self._is_ended

    def _refuse_interrupted(self) -> None:
        """Raise if a signal handler interrupted a change of the session."""
        if owns(self._lock)():
            raise WrongThreadError(
                "a signal handler called join() or close() in the middle of another such call of "
                "this session. In a handler, set an event or raise SystemExit, and close there"
            )

    def _refuse_fork(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedProcessError(
                "this session belongs to the parent process: open a session after the fork, in "
                "the process that uses it"
            )

    def __reduce__(self) -> NoReturn:
        raise UsageError("a session cannot be pickled: open one in the process that uses it")


class Session(PlainWith, BaseSession):  # noqa: D101 - documented by its base
    __doc__ = BaseSession.__doc__

    def close(self, timeout: float | None = None) -> None:
        """Leave every group and close the connection.

        A second close does nothing, and so does a close in a forked child.

        Args:
            timeout: seconds to wait at most, half of them for roles to be released. None waits as
                long as `Rink.leave` does.
        """
        if timeout is not None:
            _close_within([self], check_seconds("timeout", timeout))
        elif not self._is_over:
            for engine in self._begin_close():
                while not engine.left.wait(REPORT_INTERVAL_S):
                    engine.report_leaving()
            self._end_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_advised: set[str] = set()

# Sessions that have joined a group and are not closed. User code may keep only a role of them.
_joined: set[BaseSession] = set()


def _close_within(sessions: list[BaseSession], seconds: float) -> None:
    """Close several sessions within one common timeout."""
    sessions = [session for session in sessions if not session._is_over]  # noqa: SLF001
    leaving = [
        (session, session.clock.now() + seconds, session._begin_close(seconds / 2))  # noqa: SLF001
        for session in sessions
    ]
    for session, until, engines in leaving:
        for engine in engines:
            engine.left.wait(max(0.0, until - session.clock.now()))
    for session in sessions:
        session._end_close()  # noqa: SLF001


def _close_all() -> None:
    _close_within(list(_joined), EXIT_TIMEOUT_S)


atexit.register(_close_all)
os.register_at_fork(after_in_child=mark_forked)

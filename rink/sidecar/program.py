"""Run one sidecar from its start to its end.

A module that only one option needs is imported at its use, since each module costs memory in every
pod.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
from starlette.types import ASGIApp

from rink import aio
from rink.errors import ConfigError
from rink.sidecar import public
from rink.sidecar.access import Access, Bearer
from rink.sidecar.clock import in_ms
from rink.sidecar.consumer_turns import ConsumerTurns
from rink.sidecar.effects import Granted, Over, Renewed, SidecarEffect
from rink.sidecar.http_api import MAX_STREAMS, Api
from rink.sidecar.listeners import MAX_CALLERS, Address, listen, serve
from rink.sidecar.membership import Membership
from rink.sidecar.pod_label import check_label_name
from rink.sidecar.role_files import Files
from rink.sidecar.service import Service

if TYPE_CHECKING:
    from rink.sidecar.pod_labeller import PodLabeller

log = logging.getLogger("rink.sidecar")

OTHER_FILES = 128
"""Descriptors that are not connections of clients: etcd, logs and files."""

ENDS = (signal.SIGTERM, signal.SIGINT)


@attrs.frozen(kw_only=True)
class SidecarSettings:
    """Hold the settings of a sidecar.

    Attributes:
        hold_s: the maximum time to the told end of a turn.
        absent_s: how long the member stays without a consumer.
        grace_s: how long a consumer may work after a loss.
        roles: the roles that the sidecar holds for its whole pod.
        label_pod: the roles whose holder's pod gets a label.
        page: the group's name, or "" to show no page.
    """

    listen: Address
    public: Address | None
    hold_s: float = 10.0
    absent_s: float = 10.0
    grace_s: float = 60.0
    roles: tuple[str, ...] = ()
    label_pod: tuple[str, ...] = ()
    files: Path | None = None
    bearer: Path | None = None
    socket_group: str | None = None
    insecure: bool = False
    max_streams: int = MAX_STREAMS
    page: str = ""

    def __attrs_post_init__(self) -> None:
        """Refuse invalid settings, and settings that exclude each other.

        Raises:
            ConfigError: a setting is refused. The message names the option.
        """
        if not self.listen.is_local and not self.insecure:
            raise ConfigError(
                f"--listen {self.listen} is no loopback address, so other machines could take "
                "this pod's roles: use 127.0.0.1, or unix:PATH, or --insecure behind a proxy with "
                "TLS"
            )
        if self.socket_group is not None and not self.listen.path:
            raise ConfigError(
                "--socket-group needs --listen unix:PATH: it sets the group of that socket"
            )
        if self.page and self.public is None:
            raise ConfigError("--page needs --public: the page is shown there")
        for role in self.label_pod:
            check_label_name(role)


def hold_ms(settings: SidecarSettings, ttl: float, margin: float) -> int:
    """Return the maximum time to the told end of a turn, in milliseconds.

    It is at most half of the time that a session lasts without an answer of etcd. Longer ends would
    reach the deadline between two keepalives, and would be cut off there.
    """
    return in_ms(min(settings.hold_s, (ttl - margin) / 2))


class Program:
    """Run a sidecar until it must leave and has left.

    The constructor checks all settings before the group is joined. `make` returns a member that has
    not joined yet.

    Raises:
        ConfigError: an address is taken, a file cannot be used, or no member can be made.
    """

    def __init__(
        self, settings: SidecarSettings, session: aio.Session, make: Callable[[], aio.Rink]
    ) -> None:
        self.settings = settings
        self.session = session
        span_ms = hold_ms(settings, session.ttl, session.margin)
        turns = ConsumerTurns(span_ms, in_ms(settings.grace_s))
        self.service = Service(turns)
        stays = bool(settings.roles)
        self.membership = Membership(self.service, make, settings.absent_s, stays)
        make()  # so that its errors are raised here, and not at the first consumer
        _allow_files(settings.max_streams)
        self._bearer = Bearer(settings.bearer) if settings.bearer else None
        self._labeller = self._make_labeller(turns)
        self.membership.labeller = self._labeller
        self._files = Files(settings.files) if settings.files else None
        self.public_listener = listen(settings.public) if settings.public else None
        # This comes last, so that a failure above leaves no socket behind.
        self.listener = listen(settings.listen, settings.socket_group)
        self._socket_inode = _inode(settings.listen.path)
        self._stop = asyncio.Event()
        self._signals = 0

    async def run(self) -> None:
        """Serve until a signal or a drain, and leave."""
        settings, service, membership = self.settings, self.service, self.membership
        if self._files is not None:
            service.on_change.append(self._write_files)
        if self._labeller is not None:
            service.on_change.append(self._labeller.look)
        for signal_ in ENDS:
            asyncio.get_running_loop().add_signal_handler(signal_, self._signalled, signal_)
        if settings.roles:
            service.hold_for_pod(list(settings.roles))
        lag = public.LoopLag()
        async with asyncio.TaskGroup() as tasks:
            api = serve(self._api(), self.listener, self._stop, settings.max_streams)
            servers = [tasks.create_task(api)]
            log.info("the API is at %s", _where(self.listener, settings.listen))
            if self.public_listener is not None:
                app = self._public(lag)
                servers.append(tasks.create_task(serve(app, self.public_listener, self._stop)))
                log.info("probes are at %s", _where(self.public_listener, settings.public))
            beside = [tasks.create_task(work) for work in (lag.run(), self._fail())]
            if self._labeller is not None:
                beside.append(tasks.create_task(self._labeller.run()))
            tasks.create_task(membership.run())
            for server in servers:
                await server
            if self._labeller is not None:
                await self._labeller.close()
            for task in beside:
                task.cancel()
        service.close()
        self._clean_up()
        await self.session.close()

    def _make_labeller(self, turns: ConsumerTurns) -> PodLabeller | None:
        labelled = frozenset(self.settings.label_pod)
        if not labelled:
            return None
        from rink.sidecar.pod_api import Pod, PodApi
        from rink.sidecar.pod_labeller import PodLabeller

        pod = Pod.of(os.environ)
        return PodLabeller(turns, labelled, PodApi(pod, labelled), pod=pod.name)

    def _clean_up(self) -> None:
        if self._files is not None:
            self._files.clear()
            self._files.close()
        path = self.settings.listen.path
        if path and _inode(path) == self._socket_inode:  # otherwise it is a later sidecar's socket
            Path(path).unlink(missing_ok=True)

    async def _fail(self) -> None:
        await self.membership.failed.wait()
        assert self.membership.failure is not None
        raise self.membership.failure

    def _api(self) -> Access:
        app = Api(self.service, self.membership, self.settings.max_streams)
        needs_host = not self.settings.listen.path and not self.settings.insecure
        return Access(app, self._bearer, needs_host)

    def _public(self, lag: public.LoopLag) -> ASGIApp:
        from rink.sidecar.metrics import SidecarMetrics, exposition_of

        not_ready = partial(public.why_not_ready, self.service, self.membership)
        page = None
        if self.settings.page:
            from rink.sidecar.page import Page

            page = Page(self.service, self.membership, self.settings.page).answer
        return public.application(
            not_ready,
            partial(lag.why_late, self.session.margin),
            exposition_of(SidecarMetrics(self.service, self.membership)),
            partial(not_ready, joined=True),
            page,
        )

    def _write_files(self, effect: SidecarEffect) -> None:
        assert self._files is not None
        match effect:
            case Granted(turn):
                self._files.write(turn.role, turn.token, turn.until_ms)
            case Renewed(_, turns):
                for turn in turns:
                    self._files.write(turn.role, turn.token, turn.until_ms)
            case Over(turn):
                self._files.remove(turn.role)
            case _:
                pass

    def _signalled(self, number: signal.Signals) -> None:
        """Begin to leave, then stop waiting for a successor, then end at once.

        A drain by the API does not count as a signal. So the signal after a preStop hook is the
        first signal.
        """
        self._signals += 1
        if self._signals == 1:
            second = "a second signal ends the wait for a successor"
            if self.service.draining:
                log.info("%s: the sidecar is already leaving; %s", number.name, second)
            self.membership.drain(f"{number.name}; {second}")
            asyncio.get_running_loop().create_task(self._end())
        elif self._signals == 2:
            text = "%s: the sidecar waits for no successor; another signal ends it at once"
            log.info(text, number.name)
            self.membership.hurry()
        else:
            # Consumers may still work until their told ends, so the lease is left to expire.
            os._exit(128 + number)

    async def _end(self) -> None:
        await self.membership.left.wait()
        self._stop.set()


def _allow_files(streams: int) -> None:
    """Raise the limit of descriptors to the needed number, if allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = streams + 2 * MAX_CALLERS + OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        needed = min(needed, hard)
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _inode(path: str) -> int:
    try:
        return Path(path).stat(follow_symlinks=False).st_ino if path else 0
    except FileNotFoundError:
        return 0


def _where(listener: socket.socket, address: Address | None) -> str:
    if address is None or address.path:
        return str(address)
    return f"http://{attrs.evolve(address, port=listener.getsockname()[1])}"


@contextlib.contextmanager
def exits_at_once() -> Iterator[None]:
    """End the process at once after an error, and release no role.

    Consumers may work until their told ends. An orderly end would release their roles earlier. So
    the lease is left to expire.
    """
    try:
        yield
    except ConfigError:
        raise
    except BaseException:
        log.critical("the sidecar failed; its roles are free when its lease ends", exc_info=True)
        logging.shutdown()
        os._exit(1)

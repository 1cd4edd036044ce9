"""Define the common options of commands, checks, and ends by signals."""

from __future__ import annotations

import contextlib
import functools
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import attrs
import click

from rink.cli.exit_status import Wrong, say
from rink.core.keys import Keys, check_name
from rink.engine.clock import SYSTEM, Clock
from rink.errors import ConfigError, StateError
from rink.etcd.api import Etcd
from rink.etcd.client import Client
from rink.etcd.setting_names import spelled
from rink.settings import check_endpoints, check_prefix

REQUEST_TIMEOUT_S = 5.0

ANNOUNCE_AFTER_S = 0.6
"""Age of the process, in seconds, at which a command without an answer names its request."""

MIN_ANNOUNCE_AFTER_S = 0.25
"""The minimum time for an answer before that, even if the process started slowly."""

QUIET_TIMEOUT_S = 5.0
"""Seconds without an event after which `watch` checks that etcd still answers."""


@attrs.frozen(kw_only=True)
class Target:
    """Name an etcd, the way to reach it, and the prefix of the groups."""

    endpoints: str | None
    prefix: str
    user: str | None
    password: str | None = attrs.field(repr=False)
    ca: str | None
    cert: str | None
    key: str | None
    timeout: float = REQUEST_TIMEOUT_S

    @property
    def where(self) -> str:
        """Return the endpoints, for messages."""
        return ", ".join(check_endpoints(self.endpoints))

    def reading(self, group: str) -> contextlib.AbstractContextManager[None]:
        """Name the request on stderr if reading a group takes too long."""
        return announced(self, f"reading group {group!r} from")

    def keys(self, group: str) -> Keys:
        """Return the keys of a group."""
        return Keys.of(self.prefix, group)

    def unknown(self, group: str) -> StateError:
        """Return the error for a group that has no keys."""
        root = self.keys(group).root.decode()
        return StateError(
            f"there is no group {group!r}: the etcd at {self.where} has no key under "
            f"{root!r} (`rink groups` lists the groups)",
            key=root,
        )


def connect(target: Target) -> Etcd:
    """Make a client of a real etcd. It connects at its first request."""
    access = attrs.asdict(target, filter=attrs.filters.exclude("endpoints", "prefix"))
    client = Client(check_endpoints(target.endpoints), **access)
    client.fail_refused()  # a person waits, and can start etcd
    return client


@attrs.frozen
class Outside:
    """Hold the parts of the outside world that the commands use.

    Tests replace them by click's `obj`. `started_at` is the start of the process, by
    `time.monotonic()`. None means that the process did other work before, so the command counts
    from its own start.
    """

    connect: Callable[[Target], Etcd] = connect
    clock: Clock = SYSTEM
    quiet_s: float = QUIET_TIMEOUT_S
    announce_s: float = ANNOUNCE_AFTER_S
    started_at: float | None = None

    def announce_after(self, now: float) -> float:
        """Return the seconds from now until the request is named on stderr."""
        if self.started_at is None:
            return self.announce_s
        return max(self.announce_s - (now - self.started_at), MIN_ANNOUNCE_AFTER_S)


def outside() -> Outside:
    """Return the outside world of this run."""
    world = click.get_current_context().obj
    if isinstance(world, Outside):
        return world
    # `main` sets the time when the process started.
    return Outside(started_at=world if isinstance(world, float) else None)


@contextlib.contextmanager
def opened(target: Target) -> Iterator[Etcd]:
    """Open a client for the body. Invalid settings are a usage error."""
    try:
        etcd = outside().connect(target)
    except ConfigError as error:
        raise Wrong(str(error)) from error
    try:
        yield etcd
    finally:
        etcd.close()


def announced(target: Target, doing: str) -> contextlib.AbstractContextManager[None]:
    """Name the body's request on stderr, if etcd does not answer soon.

    `doing` names the command's action, such as `reading group 'a' from`.
    """
    gives_up = f"the command gives up after {target.timeout:g} s"
    return unanswered(f"{doing} etcd at {target.where}; {gives_up}")


@contextlib.contextmanager
def unanswered(tried: str) -> Iterator[None]:
    """Name the body's request on stderr, if no answer comes soon."""
    delay = outside().announce_after(time.monotonic())
    timer = threading.Timer(delay, say, [f"rink: no answer yet: {tried}"])
    timer.daemon = True  # Ctrl-C ends the command without it
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Seconds(click.FloatRange):
    """Take a finite time in seconds.

    A click range also accepts infinity and NaN: no comparison with NaN is true.
    """

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the time, or refuse the text."""
        seconds = float(super().convert(value, param, ctx))
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return seconds


def as_options() -> contextlib.AbstractContextManager[None]:
    """Spell settings as options in the messages of the body."""
    return spelled({field.name: f"--{field.name}" for field in attrs.fields(Target)})


def _check_prefix(_: click.Context, __: click.Parameter, value: str) -> str:
    try:
        with as_options():
            return check_prefix(value)
    except ConfigError as error:
        raise Wrong(str(error)) from error  # the message already names the option


def name_check(kind: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a callback that refuses values that cannot be names of this kind.

    The kinds are group, member, role and slot.
    """

    def checked(_: click.Context, __: click.Parameter, value: Any) -> Any:
        names = value if isinstance(value, tuple) else (value,)
        try:
            for name in names if value is not None else ():
                check_name(kind, name)
        except ConfigError as error:
            raise click.BadParameter(str(error)) from error
        return value

    return checked


with_json = click.option("--json", "as_json", is_flag=True, help="Write JSON, for programs.")
check_group, check_role = name_check("group"), name_check("role")


_OPTIONS = (
    click.option(
        "--endpoints",
        envvar="RINK_ETCD",
        metavar="URLS",
        help="Addresses of etcd, separated by commas.  [default: 127.0.0.1:2379]",
    ),
    click.option(
        "--prefix", default="rink/", callback=_check_prefix, help="The beginning of every key."
    ),
    click.option("--user", envvar="RINK_ETCD_USER", help="The etcd user."),
    click.option(
        "--password",
        envvar="RINK_ETCD_PASSWORD",
        help=(
            "The user's password. Set it by the environment: other users can see a command's "
            "options."
        ),
    ),
    click.option(
        "--ca",
        envvar="RINK_ETCD_CA",
        help="PEM file of the authority that signed the servers' certificates.",
    ),
    click.option("--cert", envvar="RINK_ETCD_CERT", help="PEM file of a client certificate."),
    click.option("--key", envvar="RINK_ETCD_KEY", help="PEM file of the client certificate's key."),
)
_TIMEOUT = click.option(
    "--timeout",
    metavar="S",
    type=click.FloatRange(min=0, min_open=True),
    default=REQUEST_TIMEOUT_S,
    help="Seconds for each request to etcd.",
)


def with_target(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of the etcd, as one argument `target`."""
    return _with((*_OPTIONS, _TIMEOUT), function, {field.name for field in attrs.fields(Target)})


def with_target_but_timeout(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of the etcd, except `--timeout`."""
    names = {field.name for field in attrs.fields(Target)} - {"timeout"}
    return _with(_OPTIONS, function, names)


def _with(
    options: tuple[Callable[..., Any], ...], function: Callable[..., Any], names: set[str]
) -> Callable[..., Any]:
    @functools.wraps(function)
    def packed(*args: Any, **values: Any) -> Any:
        target = Target(**{name: values.pop(name) for name in names})
        with as_options():
            return function(*args, target=target, **values)

    for option in reversed(options):
        packed = option(packed)
    return packed


@contextlib.contextmanager
def until_ended() -> Iterator[None]:
    """Run the body until Ctrl-C or SIGTERM, and end it in order.

    Handle SIGINT, too: a shell without job control ignores SIGINT in a command that ends in `&`.
    """

    def end(_: int, __: Any) -> NoReturn:
        raise KeyboardInterrupt

    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

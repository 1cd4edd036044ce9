"""The app that a command is given as `module:attr`: found, and run against its Redis.

The only way from the command line into `rink.streams`, which needs what an extra brings: nothing of it is
imported before a command needs it.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import re
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rink.cli.exit_status import Failed
from rink.cli.options import unanswered
from rink.distribution import install_command
from rink.errors import ConfigError
from rink.settings import check_endpoints

if TYPE_CHECKING:
    from rink.streams import App, Stream

T = TypeVar("T")

NEEDED = {"redis", "hiredis", "prometheus_client", "cronsim"}
"""What the extra `streams` brings."""

with_app = click.argument("app", metavar="MODULE:ATTR")


class NeedsExtra(Failed):
    """What an extra brings is not installed; the exit status is 2, as for the extra `cli`."""

    exit_code = 2


def load(text: str) -> App:
    """Return the app that `module:attr` names, imported from the current folder or what is installed.

    Raises:
        Failed: there is none; the message says what there is instead. What the module itself
            raised has been shown with its traceback.
    """
    kind = _app_class()
    name, _, path = text.partition(":")
    if not name or not path:
        raise click.BadParameter(
            f"{text!r} names no app: give its module and attribute, such as shop:app",
            param_hint="MODULE:ATTR",
        )
    found = _attribute(_module(name), path)
    if not isinstance(found, kind):
        raise Failed(
            f"{text} is {_some(found)}, and no rink.streams.App: name the attribute that App(...) was "
            "assigned to"
        )
    return found


def stream_of(app: App, name: str) -> Stream[Any]:
    """Return a stream of the app by its name; raises a Failed that lists those there are."""
    if name not in app.streams:
        raise Failed(f"app {app.name!r} has no stream {name!r}; it has {sorted(app.streams)}")
    return app.streams[name]


def redis_of(app: App) -> str:
    """Return where the app looks for Redis, without a password."""
    if app.redis_url is None:
        return "Redis, as the app connects to it"  # only its function knows where
    with contextlib.suppress(ConfigError):
        return f"Redis at {app.connections.connect().server}"
    return "Redis"  # the URL cannot be used, as the command says itself


def etcd_of(app: App) -> str:
    """Return where the app looks for etcd, without a password."""
    if callable(app.etcd):
        return "etcd, as the app connects to it"
    with contextlib.suppress(ConfigError):
        urls = ", ".join(check_endpoints(app.etcd))
        return f"etcd at {re.sub('//[^/]*@', '//', urls)}"
    return "etcd"


def asking(app: App, *, etcd: bool = False) -> contextlib.AbstractContextManager[None]:
    """Say on stderr which servers are asked, if the answer takes long."""
    servers = f"{redis_of(app)} and {etcd_of(app)}" if etcd else redis_of(app)
    return unanswered(f"asking {servers}")


def run(app: App, work: Callable[[], Awaitable[T]]) -> T:
    """Run something of an app's in an event loop of its own, and close its connections."""
    from rink.redis.error_map import first_error

    async def body() -> T:
        try:
            return await work()
        finally:
            await app.close()

    try:
        return asyncio.run(body())
    except BaseExceptionGroup as group:
        raise first_error(group) from group


def _app_class() -> type[App]:
    try:
        from rink.streams import App, Worker  # noqa: F401 - and what workers need is to be there
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in NEEDED:
            raise
        raise NeedsExtra(f"streams need {missing}: {install_command('streams')}") from error
    return App


def _module(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:  # as `python -m` has it; the script's own folder is none of the user's
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _raised(
                name, error
            ) from error  # it is there, and imports another one that is not
        raise Failed(
            f"there is no module {error.name!r} in {here} or among what is installed: start the command "
            "in the folder that has it, or give its full name, such as package.shop:app"
        ) from error
    except Exception as error:
        raise _raised(name, error) from error


def _raised(name: str, error: Exception) -> Failed:
    """Show where a module failed, without our frames and those of the import machinery."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [one for one in frames if not _is_ours(one.filename)]
    told = traceback.TracebackException.from_exception(error)
    told.stack = traceback.StackSummary.from_list(theirs)
    click.echo("".join(told.format(chain=False)), err=True, nl=False)
    return Failed(f"module {name!r} could not be imported: {type(error).__name__}: {error}")


def _is_ours(filename: str) -> bool:
    return filename.startswith("<frozen importlib") or Path(filename) in (
        Path(__file__),
        Path(importlib.__file__),
    )


def _attribute(module: ModuleType, path: str) -> object:
    found: object = module
    for part in path.split("."):
        if not hasattr(found, part):
            where = module.__file__ or module.__name__
            apps = sorted(name for name, value in vars(module).items() if _is_app(value))
            has = f"; its apps are {apps}" if apps else ""
            raise Failed(f"module {module.__name__!r} ({where}) has no attribute {path!r}{has}")
        found = getattr(found, part)
    return found


def _is_app(value: object) -> bool:
    return isinstance(value, _app_class())


def _some(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if callable(value) and hasattr(value, "__name__"):
        return f"the function {value.__name__}"
    return f"of type {type(value).__name__}"

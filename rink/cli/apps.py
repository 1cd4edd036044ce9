"""Load the app that a command names as `module:attr`, and run it.

Only this module imports `rink.streams`, which needs an extra, and only when a command needs it.
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
from rink.errors import ConfigError
from rink.pip_distribution import install_command
from rink.settings import check_endpoints

if TYPE_CHECKING:
    from rink.streams import App, Stream

T = TypeVar("T")

NEEDED = {"redis", "hiredis", "prometheus_client", "cronsim"}
"""The modules that the extra `streams` installs."""

with_app = click.argument("app", metavar="MODULE:ATTR")


class NeedsExtra(Failed):
    """Report a missing extra, and exit with 2, as for the extra `cli`."""

    exit_code = 2


def load(text: str) -> App:
    """Return the app that `module:attr` names.

    Its module is imported from the current folder or from the installed packages.

    Raises:
        Failed: there is no such app. The message describes the object with this name. If the module
            itself raised an error, its traceback is on stderr.
    """
    kind = _app_class()
    name, _, path = text.partition(":")
    if not name or not path:
        raise click.BadParameter(
            f"{text!r} names no app: give its module and attribute, such as shop:app",
            param_hint="MODULE:ATTR",
        )
    value = _attribute(_module(name), path)
    if not isinstance(value, kind):
        raise Failed(
            f"{text} is {_some(value)}, and no rink.streams.App: name the attribute that App(...) "
            "was assigned to"
        )
    return value


def stream_of(app: App, name: str) -> Stream[Any]:
    """Return a stream of the app by its name.

    Raises:
        Failed: the app has no such stream; the message lists its streams.
    """
    if name not in app.streams:
        raise Failed(f"app {app.name!r} has no stream {name!r}; it has {sorted(app.streams)}")
    return app.streams[name]


def redis_of(app: App) -> str:
    """Return the address of the app's Redis, without a password."""
    if app.redis_url is None:
        return "Redis, as the app connects to it"  # only the app's function knows the address
    with contextlib.suppress(ConfigError):
        return f"Redis at {app.connections.connect().server}"
    return "Redis"  # the URL is invalid; the command itself reports that


def etcd_of(app: App) -> str:
    """Return the address of the app's etcd, without a password."""
    if callable(app.etcd):
        return "etcd, as the app connects to it"
    with contextlib.suppress(ConfigError):
        urls = ", ".join(check_endpoints(app.etcd))
        return f"etcd at {re.sub('//[^/]*@', '//', urls)}"
    return "etcd"


def asking(app: App, *, etcd: bool = False) -> contextlib.AbstractContextManager[None]:
    """Name the servers of a request on stderr, if the answer takes long."""
    servers = f"{redis_of(app)} and {etcd_of(app)}" if etcd else redis_of(app)
    return unanswered(f"asking {servers}")


def run(app: App, work: Callable[[], Awaitable[T]]) -> T:
    """Run `work` in a new event loop, then close the app's connections."""
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
        from rink.streams import App, Worker  # noqa: F401 - Worker needs more of the extra
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in NEEDED:
            raise
        raise NeedsExtra(f"streams need {missing}: {install_command('streams')}") from error
    return App


def _module(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:  # as `python -m` does; the script's own folder is not the user's
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            # The module exists, but it imports a missing module.
            raise _raised(name, error) from error
        raise Failed(
            f"there is no module {error.name!r} in {here} or in the installed packages: start the "
            "command in the folder that has it, or give its full name, such as package.shop:app"
        ) from error
    except Exception as error:
        raise _raised(name, error) from error


def _raised(name: str, error: Exception) -> Failed:
    """Show a module's traceback without frames of Rink and the import system."""
    frames = traceback.extract_tb(error.__traceback__)
    user_frames = [frame for frame in frames if not _is_ours(frame.filename)]
    shown = traceback.TracebackException.from_exception(error)
    shown.stack = traceback.StackSummary.from_list(user_frames)
    click.echo("".join(shown.format(chain=False)), err=True, nl=False)
    return Failed(f"module {name!r} could not be imported: {type(error).__name__}: {error}")


def _is_ours(filename: str) -> bool:
    return filename.startswith("<frozen importlib") or Path(filename) in (
        Path(__file__),
        Path(importlib.__file__),
    )


def _attribute(module: ModuleType, path: str) -> object:
    value: object = module
    for part in path.split("."):
        if not hasattr(value, part):
            where = module.__file__ or module.__name__
            kind = _app_class()
            apps = sorted(key for key, other in vars(module).items() if isinstance(other, kind))
            has = f"; its apps are {apps}" if apps else ""
            raise Failed(f"module {module.__name__!r} ({where}) has no attribute {path!r}{has}")
        value = getattr(value, part)
    return value


def _some(value: object) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if callable(value) and hasattr(value, "__name__"):
        return f"the function {value.__name__}"
    return f"of type {type(value).__name__}"

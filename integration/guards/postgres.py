"""Run a real PostgreSQL for tests.

It listens on loopback, in a temporary folder, and is stopped and removed at the end.

    with local_postgres() as server:
        engine = create_engine(server.url)

Root may not run it, so root runs it as `postgres` or `nobody`. If the test run is killed, the
server ends too: it is started with PR_SET_PDEATHSIG.
"""

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import attrs

from rink.testing.process.ports import free_ports

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class NoPostgres(Exception):  # noqa: N818 - as errors of ours are named
    """Raised when PostgreSQL is not there, or did not start."""


@attrs.define
class Postgres:
    """A running server.

    Attributes:
        url: for SQLAlchemy, with psycopg. The user may do anything, and has the password `secret`.
        port: on 127.0.0.1.
    """

    port: int
    folder: Path
    process: subprocess.Popen

    @property
    def url(self):
        return f"postgresql+psycopg://rink:secret@127.0.0.1:{self.port}/postgres"

    def stop(self):
        """End it as an operator would, together with its clients."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.send_signal(signal.SIGQUIT)
                self.process.wait(20)


@contextlib.contextmanager
def local_postgres(deadline=60.0):
    """Run a server for as long as the `with` lasts."""
    initdb, postgres = _program("initdb"), _program("postgres")
    account = _account()
    folder = Path(tempfile.mkdtemp(prefix="rink-pg-", dir="/tmp"))
    try:
        if account:
            os.chown(folder, account.pw_uid, account.pw_gid)
        _make(initdb, folder, account)
        server = _start(postgres, folder, account)
        try:
            _wait(server, deadline)
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _program(name):
    found = shutil.which(name)
    if found is None:
        others = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=_version)
        found = str(others[-1]) if others else None
    if found is None:
        raise NoPostgres(
            f"no {name} on the PATH nor under /usr/lib/postgresql/*/bin: these tests need "
            "PostgreSQL (on Debian: apt-get install postgresql)"
        )
    # initdb looks for postgres beside itself, and a link on the PATH lies elsewhere.
    return os.path.realpath(found)


def _version(path):
    version = path.parts[-3]
    return [int(one) for one in version.split(".") if one.isdigit()]


def _account():
    """Return the unprivileged account that root uses; None for other users."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise NoPostgres(
        "root may not run PostgreSQL, and there is no account postgres or nobody to run it as"
    )


def _settings(account):
    if account is None:
        return {}
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _make(initdb, folder, account):
    secret = folder / "secret"
    secret.write_text("secret\n")
    if account:
        os.chown(secret, account.pw_uid, account.pw_gid)
    done = subprocess.run(
        [
            initdb, "-D", folder / "data", "-U", "rink", "--auth=scram-sha-256",
            f"--pwfile={secret}",
            "-E", "UTF8", "--locale=C", "--no-sync",
        ],
        capture_output=True, text=True, cwd=folder, check=False, **_settings(account),
    )  # fmt: skip
    if done.returncode:
        raise NoPostgres(f"initdb failed: {done.stderr}")


def _start(postgres, folder, account):
    (port,) = free_ports(1)
    settings = {
        "listen_addresses": "127.0.0.1", "unix_socket_directories": folder, "fsync": "off",
        "max_connections": "60", "shared_buffers": "16MB",
    }  # fmt: skip
    words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [postgres, "-D", folder / "data", "-p", str(port), *words],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd=folder,
            # One call, and no thread yet.
            preexec_fn=lambda: _libc.prctl(PR_SET_PDEATHSIG, signal.SIGQUIT),  # noqa: PLW1509
            **_settings(account),
        )
    return Postgres(port, folder, process)


def _wait(server, deadline):
    ends = time.monotonic() + deadline
    ready = server.folder / "data" / "postmaster.pid"
    while time.monotonic() < ends:
        if server.process.poll() is not None:
            break
        # Its eighth line says "ready" once it takes connections.
        with contextlib.suppress(OSError):
            if ready.read_text().splitlines()[7:8] == ["ready   "]:
                return
        time.sleep(0.02)
    server.stop()
    log = (server.folder / "log").read_text(errors="replace")
    raise NoPostgres("PostgreSQL did not start:\n" + "\n".join(log.splitlines()[-20:]))

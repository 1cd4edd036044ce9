"""Poll four banks from several pods, each bank from exactly one pod.

Replace BANKS and `poll` by your own roles and work. The manifest sets the environment, and Rink
itself reads RINK_ETCD.
"""

import logging
import os
import signal
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import rink

BANKS = ("bank-1", "bank-2", "bank-3", "bank-4")
READINESS_PORT = 8080

log = logging.getLogger("program")


def poll(role: rink.Role) -> None:
    """Work under one role until it is lost."""
    log.info("polling %s with token %d", role.name, role.token)
    while not role.lost.wait(1.0):
        pass  # one short piece of your work, which sends role.token with each write
    log.info("stopped polling %s", role.name)


def main() -> None:
    """Join the group, work, and leave it at the first SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    with (
        rink.Session(ttl=float(os.environ["RINK_TTL"]), **certificates()) as session,
        rink.Rink(
            session,
            os.environ["RINK_GROUP"],
            name=os.environ["POD_NAME"],
            labels={"revision": os.environ["POD_REVISION"]},
            handover_wait=float(os.environ["RINK_HANDOVER_WAIT"]),
            leave_delay=float(os.environ["RINK_LEAVE_DELAY"]),
        ) as r,
    ):
        serve_readiness(session)
        for bank in BANKS:
            r.on_role(bank)(poll)
        stop.wait()
        r.leave(keep_rank=os.environ["RINK_KEEP_RANK"] == "true")


def certificates() -> dict[str, Any]:
    """Return the certificate settings, or none if the Secret is absent."""
    folder = Path(os.environ["CERTIFICATES"])
    if not (folder / "ca.crt").exists():
        return {}
    files = {"ca": "ca.crt", "cert": "tls.crt", "key": "tls.key"}
    return {setting: str(folder / file) for setting, file in files.items()}


def serve_readiness(session: rink.Session) -> None:
    """Answer the readiness probe: 200 while the session is live, else 503.

    The pod is ready once it has joined. It must not wait for a role: the old pod keeps the role
    until the new pod is ready.
    """

    class Readiness(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if session.is_live else 503)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write no log line for a probe."""

    server = ThreadingHTTPServer(("", READINESS_PORT), Readiness)
    threading.Thread(target=server.serve_forever, daemon=True).start()


if __name__ == "__main__":
    main()

"""Serve HTTP until SIGTERM, as a program that knows no roles.

`rink run` runs it. It prints when it began and stopped to serve, with the token from its
environment, as `SaidRecords` reads it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NoReturn


def say(what: str) -> None:
    """Print a line with the time of CLOCK_BOOTTIME."""
    at = time.clock_gettime(time.CLOCK_BOOTTIME)
    role, token = os.environ["RINK_ROLE"], os.environ["RINK_TOKEN"]
    print(f"{at:.3f} {what} {role} {token}", flush=True)


class Hello(BaseHTTPRequestHandler):
    """Answer every request."""

    def do_GET(self) -> None:
        """Answer with the token."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ["RINK_TOKEN"].encode())


def end(*_: object) -> NoReturn:
    """Stop to serve at once."""
    say("let go")
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    """Serve."""
    server = ThreadingHTTPServer(("", int(sys.argv[1])), Hello)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    signal.signal(signal.SIGTERM, end)
    say("gained")
    signal.pause()


if __name__ == "__main__":
    main()

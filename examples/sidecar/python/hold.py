"""Hold a role by the sidecar, and write "ROLE TOKEN" to stdout.

    RINK_API=127.0.0.1:8181 python hold.py ROLE

The stream says that something has changed. A renewal says what is held, and until when.
"""

import contextlib
import http.client
import json
import os
import signal
import sys
import threading
import time
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

API = "http://" + os.environ.get("RINK_API", "127.0.0.1:8181")
ROLE = sys.argv[1]
HEADERS = {"Content-Type": "application/json", "Accept": "text/event-stream"}
WRITE_MS = 100  # no write begins later than this before the end
ERRORS = (OSError, http.client.HTTPException)

opener = build_opener(ProxyHandler({}))  # obeys no http_proxy
changed, stopping = threading.Event(), threading.Event()
grant = ""
held: dict[str, tuple[int, int]] = {}  # the token and the end of each role


def now_ms():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def call(path, body, timeout=2.0):
    request = Request(API + path, json.dumps(body).encode(), HEADERS)
    return opener.open(request, timeout=timeout)


def follow():
    """Keep a stream open, and note that something has changed."""
    global grant
    while True:
        anew = {"roles": [ROLE], "consumer": "python", "alive": 15}
        try:
            body = {"grant": grant} if grant else anew
            with call("/v1/hold", body, timeout=None) as stream:
                for line in stream:
                    event = json.loads(line[5:]) if line.startswith(b"data:") else {}
                    if "role" in event:  # granted, lost, waiting
                        grant = event["grant"]
                        changed.set()
        except HTTPError as error:
            if error.code == 410:  # the sidecar was restarted, or has forgotten us
                grant = ""
        except ERRORS:
            pass
        time.sleep(0.3)


def renew():
    """Ask what is held, and answer what is lost. No work runs meanwhile."""
    global held
    asked = now_ms()
    with call("/v1/renew", {"grant": grant}) as answer:
        turns = json.load(answer)["held"]
    read = now_ms()
    held = {}
    for turn in turns:
        if turn["state"] == "lost":
            answer = {"grant": turn["grant"], "role": turn["role"], "token": turn["token"]}
            call("/v1/release", answer).close()
            continue
        is_same_clock = asked - 20 <= turn["now_ms"] <= read + 20
        end = turn["until_ms"] if is_same_clock else asked + turn["left_ms"]
        held[turn["role"]] = turn["token"], end


signal.signal(signal.SIGTERM, lambda *_: stopping.set())
threading.Thread(target=follow, daemon=True).start()
renewed_at = 0
while not stopping.is_set() or any(now_ms() < end for _, end in held.values()):
    is_changed = changed.wait(0.1)
    changed.clear()
    if grant and (is_changed or now_ms() >= renewed_at + 1000):
        renewed_at = now_ms()
        with contextlib.suppress(ERRORS):  # after one, the ends that were told bind as before
            renew()
    for role, (token, end) in held.items():
        if now_ms() + WRITE_MS < end:  # before each write
            print(role, token, flush=True)

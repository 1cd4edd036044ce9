"""Call the API of a sidecar in this process.

Its member grants the roles that a test names.
"""

import asyncio
import contextlib
import functools
import json

import httpx

from rink.sidecar.access import Access
from rink.sidecar.consumer_turns import ConsumerTurns
from rink.sidecar.http_api import Api
from rink.sidecar.membership import MembershipState
from rink.sidecar.service import Service

URL = "http://127.0.0.1:8181"


class StandIn:
    """Grant roles as a test says, in place of a member."""

    def __init__(self, service):
        self.service = service
        self.wanted, self.let_gone = [], []
        self.is_live = True
        self.rink, self.trouble, self.state = None, "", MembershipState.JOINED
        self.presence, self.left = asyncio.Event(), asyncio.Event()
        self.drained = ""
        service.member = self

    def session(self):
        return (1, self.service.clock() + 15_000) if self.is_live else (0, 0)

    def want(self, role):
        self.wanted.append(role)

    def unwant(self, role):
        self.wanted.remove(role)

    def let_go(self, role):
        self.let_gone.append(role)

    def obstacle(self, role):
        return "shop-b: owns it in version 3"

    def drain(self, why):
        self.drained = self.service.draining = why


class Clock:
    def __init__(self):
        self.now_ms = 50_000_000

    def __call__(self):
        return self.now_ms


class Sidecar:
    """Hold a service, its API, and a client of it."""

    def __init__(self, bearer=None, grace_ms=30_000, max_streams=256):
        self.clock = Clock()
        self.service = Service(ConsumerTurns(9_000, grace_ms), self.clock)
        self.member = StandIn(self.service)
        self.api = Api(self.service, self.member, max_streams)
        self.app = Access(self.api, bearer, host=True)
        transport = httpx.ASGITransport(self.app)
        self.client = httpx.AsyncClient(transport=transport, base_url=URL)

    async def post(self, path, body=None, **headers):
        return await self.client.post(path, json=body or {}, headers=headers)

    async def get(self, path, **query):
        return await self.client.get(path, params=query)

    def grant(self, role, token=7):
        self.member.wanted.remove(role)
        return self.service.granted(role, token)

    async def held(self, *roles, **body):
        """Hold roles by a call that waits, grant them, and return the answer."""
        calling = asyncio.create_task(
            self.post("/v1/hold", {"roles": list(roles), "wait": 30, **body})
        )
        await until(lambda: set(roles) <= set(self.member.wanted))
        for role in roles:
            self.grant(role)
        return (await calling).json()

    def stream(self, **body):
        return Stream(self, body)

    def call(self, **body):
        """Return a hold with a single answer."""
        return Stream(self, body, accept=b"application/json")


class Stream:
    """Read one stream of events as the server sends it."""

    def __init__(self, sidecar, body, accept=b"text/event-stream"):
        self._sidecar = sidecar
        self._accept = accept
        self._body = json.dumps(body).encode()
        self._sent = asyncio.Queue()
        self._closed = asyncio.Event()
        self.status = None
        self.was_aborted = False
        self._text = ""

    async def __aenter__(self):
        self._task = asyncio.create_task(self._call())
        return self

    async def __aexit__(self, *_):
        self.close()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def close(self):
        self._closed.set()

    def abort(self):
        """Close it as the server does after a write timeout."""
        self.was_aborted = True
        self.close()

    async def _call(self):
        headers = [
            (b"host", b"127.0.0.1:8181"),
            (b"content-type", b"application/json"),
            (b"accept", self._accept),
        ]
        scope = {
            "type": "http", "method": "POST", "path": "/v1/hold", "query_string": b"",
            "headers": headers, "server": ("127.0.0.1", 8181), "http_version": "1.1",
            "root_path": "", "scheme": "http", "state": {"was_aborted": lambda: self.was_aborted},
        }  # fmt: skip
        bodies = [{"type": "http.request", "body": self._body, "more_body": False}]

        async def receive():
            if bodies:
                return bodies.pop()
            await self._closed.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            await self._sent.put(message)

        await self._sidecar.app(scope, receive, send)

    async def event(self):
        """Return the next event: its kind and its fields."""
        while "\n\n" not in self._text:
            message = await asyncio.wait_for(self._sent.get(), 5)
            if message["type"] == "http.response.start":
                self.status = message["status"]
            else:
                self._text += message["body"].decode()
        event, _, self._text = self._text.partition("\n\n")
        if event.startswith(":"):
            return await self.event()
        fields = dict(line.split(": ", 1) for line in event.splitlines())
        return fields["event"], {**json.loads(fields["data"]), "id": fields["id"]}


async def until(happens):
    """Run the event loop until a condition holds."""
    async with asyncio.timeout(5):
        while not happens():  # noqa: ASYNC110 - it waits for other tasks, not for a time
            await asyncio.sleep(0)


def run(test):
    """Run a coroutine function of a test on a loop of its own."""

    @functools.wraps(test)
    def inner(*args, **named):
        asyncio.run(test(*args, **named))

    return inner

"""The probes: what makes a pod not ready, and what does not."""

import httpx
from prometheus_client import CollectorRegistry
from sidecar_apart import StandIn, run

from rink.sidecar import public
from rink.sidecar.consumers import Consumer
from rink.sidecar.membership import State
from rink.sidecar.service import Service
from rink.sidecar.turns import Turns


class Probed:
    """The probes of a sidecar whose member is a stand-in."""

    def __init__(self):
        self.service = Service(Turns(9_000, 30_000), lambda: 50_000_000)
        self.member = StandIn(self.service)
        self.member.state, self.member.has_consumers = State.ABSENT, False
        self.unhealthy = ""
        app = public.application(
            lambda: public.why_not_ready(self.service, self.member),
            lambda: self.unhealthy,
            CollectorRegistry(),
            lambda: public.why_not_ready(self.service, self.member, joined=True),
        )
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://10.0.0.7:8182"
        )

    async def status(self, path):
        return (await self._client.get(path)).status_code

    def join(self):
        self.member.has_consumers, self.member.state = True, State.JOINED


@run
async def test_pod_without_a_consumer_is_ready():
    probed = Probed()
    assert await probed.status("/readyz") == 200


@run
async def test_pod_without_a_consumer_is_not_ready_if_it_must_join():
    probed = Probed()
    assert await probed.status("/readyz?joined") == 503
    probed.join()
    assert await probed.status("/readyz?joined") == 200


@run
async def test_pod_that_joined_is_ready_without_a_role():
    probed = Probed()
    probed.join()
    consumer = Consumer("web", "secret", alive_ms=5_000)
    probed.service.hold(consumer, ["leader"])
    assert not consumer.turns
    assert await probed.status("/readyz") == 200


@run
async def test_pod_is_not_ready_while_it_joins_or_without_a_session():
    probed = Probed()
    probed.join()
    probed.member.state = State.JOINING
    assert await probed.status("/readyz") == 503
    probed.join()
    probed.member.is_live = False
    assert await probed.status("/readyz") == 503


@run
async def test_pod_that_drains_is_not_ready():
    probed = Probed()
    probed.join()
    probed.member.drain("the pod ends")
    assert await probed.status("/readyz") == 503


@run
async def test_startz_and_healthz_need_no_member():
    probed = Probed()
    probed.member.drain("the pod ends")
    assert await probed.status("/startz") == 200
    assert await probed.status("/healthz") == 200
    probed.unhealthy = "the event loop is 7.0 s late"
    assert await probed.status("/healthz") == 503

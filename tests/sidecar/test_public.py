"""Test the probes: the reasons that make a pod not ready."""

import contextlib
from types import SimpleNamespace

import httpx
from prometheus_client.parser import text_string_to_metric_families
from sidecar_apart import StandIn, run

from rink.sidecar import public
from rink.sidecar.consumer_turns import ConsumerTurns
from rink.sidecar.consumers import Consumer
from rink.sidecar.membership import MembershipState
from rink.sidecar.metrics import SidecarMetrics, exposition_of
from rink.sidecar.service import Service


class Probed:
    """Run the probes of a sidecar with a stand-in for its member."""

    def __init__(self):
        self.service = Service(ConsumerTurns(9_000, 30_000), lambda: 50_000_000)
        self.member = StandIn(self.service)
        self.member.state, self.member.has_consumers = MembershipState.ABSENT, False
        self.unhealthy = ""
        app = public.application(
            lambda: public.why_not_ready(self.service, self.member),
            lambda: self.unhealthy,
            exposition_of(SidecarMetrics(self.service, self.member)),
            lambda: public.why_not_ready(self.service, self.member, joined=True),
        )
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://10.0.0.7:8182"
        )

    async def status(self, path):
        return (await self._client.get(path)).status_code

    async def metrics(self):
        """Return the text of the metrics, and their values by name."""
        answer = await self._client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        families = text_string_to_metric_families(answer.text)
        samples = [sample for family in families for sample in family.samples]
        assert not any(sample.labels for sample in samples)
        return answer.text, {sample.name: sample.value for sample in samples}

    def join(self):
        self.member.has_consumers, self.member.state = True, MembershipState.JOINED

    def consumer(self, name, *roles):
        self.service.hold(Consumer(name, f"secret-{name}", alive_ms=60_000), list(roles))


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
    probed.member.state = MembershipState.JOINING
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


def member_of_a_group(members, rank, version):
    """Return the facts of a joined member about its group."""
    node = SimpleNamespace(view=SimpleNamespace(by_age=[None] * members))
    engine = SimpleNamespace(lock=contextlib.nullcontext(), node=node)
    return SimpleNamespace(rank=rank, version=SimpleNamespace(number=version), _engine=engine)


@run
async def test_metrics_have_the_value_of_each_name_and_no_role():
    probed = Probed()
    probed.join()
    probed.member.rink = member_of_a_group(members=9, rank=8, version=12)
    probed.consumer("web", *(f"shop/{number}" for number in range(6)))
    probed.consumer("cron", "shop/0")
    probed.consumer("mail", "shop/7")
    turns = [probed.service.granted(role, 7) for role in list(probed.member.wanted)[:6]]
    for turn in turns[:2]:
        probed.service.lost(turn, "version 12 changed the owner")
    probed.service.release(turns[0].consumer, turns[0].role, 7)
    text, values = await probed.metrics()
    assert values == {
        "rink_sidecar_joined": 1,
        "rink_sidecar_ranked": 1,
        "rink_sidecar_rank": 8,
        "rink_sidecar_members": 9,
        "rink_sidecar_version": 12,
        "rink_sidecar_roles_held": 4,
        "rink_sidecar_roles_draining": 1,
        "rink_sidecar_session_remaining_seconds": 15,
        "rink_sidecar_consumers": 3,
        "rink_sidecar_roles_gained_total": 6,
        "rink_sidecar_roles_lost_total": 2,
    }
    assert "shop" not in text


@run
async def test_metrics_without_a_member_or_a_rank_are_0_and_the_rank_is_less():
    probed = Probed()
    _, values = await probed.metrics()
    assert values.pop("rink_sidecar_rank") == -1
    assert set(values.values()) == {0}
    probed.member.rink = member_of_a_group(members=1, rank=None, version=12)
    _, values = await probed.metrics()
    joined = ("joined", "ranked", "rank", "members")
    assert [values[f"rink_sidecar_{name}"] for name in joined] == [1, 0, -1, 1]

"""Test that a pod's labels follow the turns, beside a stand-in server."""

import asyncio
import contextlib
import logging

import pytest
from jumping import jumping, pass_time
from sidecar_apart import StandIn

from rink.sidecar.consumer_turns import ConsumerTurns
from rink.sidecar.consumers import Consumer
from rink.sidecar.membership import Membership
from rink.sidecar.pod_api import PodApiError
from rink.sidecar.pod_label import NONE, RELEASE_WAIT_S, UNSURE_MS
from rink.sidecar.pod_labeller import REPORT_INTERVAL_S, PodLabeller
from rink.sidecar.service import Service

A, B = frozenset("a"), frozenset("b")
DELAY_S = 0.02


def now_ms():
    return round(asyncio.get_running_loop().time() * 1000)


class Kube:
    """Stand in for an API server.

    `trouble` is an error to raise, or "hangs".
    """

    def __init__(self):
        self.labels = A | B  # of a former life
        self.trouble = None
        self.calls = []
        self.under_way = 0

    async def label(self, roles):
        self.calls.append(roles)
        self.under_way += 1
        assert self.under_way == 1, "one request at a time"
        try:
            await pass_time(DELAY_S)
            if self.trouble == "hangs":
                await asyncio.Event().wait()
            if self.trouble is not None:
                raise self.trouble
            self.labels = roles
        finally:
            self.under_way -= 1


class Handle:
    """Stand in for a role that the member holds."""

    def __init__(self, kube):
        self.kube = kube
        self.released_s = None
        self.labels_then = None

    def release(self):
        self.released_s = asyncio.get_running_loop().time()
        self.labels_then = self.kube.labels


class Story:
    """Run the service and the labels of a sidecar.

    Its member releases roles as the real member does.
    """

    def __init__(self, **troubles):
        self.kube = Kube()
        self.kube.trouble = troubles.get("at_start")
        self.service = Service(ConsumerTurns(9_000, 30_000), now_ms)
        self.member = StandIn(self.service)
        membership = Membership(Service(ConsumerTurns(9_000, 30_000)), lambda: None, 10.0)
        self.handles = membership._handles
        self.member.let_go = membership.let_go
        self.labeller = PodLabeller(self.service.turns, A | B, self.kube, now_ms)
        membership.labeller = self.labeller
        self.service.on_change.append(self.labeller.look)
        self.tokens = 0

    async def __aenter__(self):
        self.running = asyncio.create_task(self.labeller.run())
        await pass_time(1)
        return self

    async def __aexit__(self, *_):
        self.service.close()
        self.running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.running

    def grant(self, role="a"):
        """Grant a role to a consumer, and return both and the handle."""
        consumer = Consumer("web", f"secret-{self.tokens}", calls=1)
        self.service.hold(consumer, [role])
        self.service.open_stream(consumer)
        self.member.wanted.remove(role)
        self.tokens += 1
        handle = self.handles[role] = Handle(self.kube)
        turn = self.service.granted(role, self.tokens)
        return consumer, turn, handle

    def release(self, consumer, turn):
        assert self.service.release(consumer, turn.role, None)

    async def wait_of_release(self, trouble):
        """Return the seconds that a release waits after trouble began."""
        consumer, turn, handle = self.grant()
        await pass_time(1)
        self.kube.trouble = trouble
        given_back_s = time_s()
        self.release(consumer, turn)
        await pass_time(5)
        return handle.released_s - given_back_s


def time_s():
    return asyncio.get_running_loop().time()


UNREACHABLE = PodApiError("Connection refused")
BROKEN = PodApiError("the API server answered 500", may_take_effect=True)
FORBIDDEN = PodApiError("the API server answered 403", is_refused=True)


@jumping
async def test_label_of_a_former_life_is_taken_off_at_the_start():
    async with Story() as story:
        assert story.kube.labels == NONE
        assert story.kube.calls == [NONE]


@jumping
async def test_label_is_on_while_the_role_is_held_and_off_at_the_release():
    async with Story() as story:
        consumer, turn, handle = story.grant()
        await pass_time(1)
        assert story.kube.labels == A
        story.release(consumer, turn)
        assert handle.released_s is None
        await pass_time(1)
        assert handle.labels_then == NONE
        assert len(story.kube.calls) == 3


@jumping
async def test_label_goes_at_the_loss_so_the_answer_waits_for_nothing():
    async with Story() as story:
        consumer, turn, handle = story.grant()
        await pass_time(1)
        story.service.lost(turn, "shop-b takes over")
        await pass_time(1)
        assert story.kube.labels == NONE
        story.release(consumer, turn)
        assert handle.released_s == time_s()


@jumping
async def test_label_goes_before_the_end_of_a_session_that_is_lost():
    async with Story() as story:
        _, turn, handle = story.grant()
        await pass_time(1)
        story.member.is_live = False
        async with asyncio.timeout(20):
            while story.kube.labels == A:
                await pass_time(0.05)
        assert turn.until_ms - now_ms() > 1_500
        await pass_time(9)
        assert handle.labels_then == NONE
        assert handle.released_s <= turn.until_ms / 1000 + 0.1


@jumping
async def test_role_that_is_given_back_before_its_label_waits_for_nothing():
    async with Story() as story:
        consumer, turn, handle = story.grant()
        story.release(consumer, turn)
        assert handle.released_s == time_s()
        await pass_time(1)
        assert story.kube.labels == NONE


@jumping
async def test_role_without_a_label_is_released_at_once():
    async with Story() as story:
        consumer, turn, handle = story.grant("other")
        story.release(consumer, turn)
        assert handle.released_s == time_s()


@pytest.mark.parametrize("trouble", ["hangs", UNREACHABLE, BROKEN])
def test_release_waits_no_longer_than_its_bound(trouble):
    @jumping
    async def tell():
        async with Story() as story:
            waited_s = await story.wait_of_release(trouble)
            assert waited_s == pytest.approx(RELEASE_WAIT_S, abs=0.01)
            story.kube.trouble = None
            await pass_time(70)
            assert story.kube.labels == NONE

    tell()


@jumping
async def test_release_long_after_the_loss_waits_for_nothing():
    async with Story() as story:
        consumer, turn, handle = story.grant()
        await pass_time(1)
        story.kube.trouble = "hangs"
        story.service.lost(turn, "shop-b takes over")
        await pass_time(RELEASE_WAIT_S)
        given_back_s = time_s()
        story.release(consumer, turn)
        await pass_time(1)
        assert handle.released_s == pytest.approx(given_back_s, abs=0.01)


@jumping
async def test_release_does_not_wait_for_what_is_refused():
    async with Story() as story:
        waited_s = await story.wait_of_release(FORBIDDEN)
        assert waited_s == pytest.approx(DELAY_S, abs=0.01)


@jumping
async def test_refusal_of_another_label_ends_no_wait():
    async with Story() as story:
        consumer, turn, handle = story.grant("a")
        await pass_time(1)
        story.kube.trouble = FORBIDDEN
        story.grant("b")
        await pass_time(0.03)
        story.kube.trouble = None
        story.release(consumer, turn)
        await pass_time(1)
        assert "a" not in handle.labels_then


@jumping
async def test_put_on_that_hangs_gives_way_to_the_take_off():
    async with Story() as story:
        story.kube.trouble = "hangs"
        consumer, turn, handle = story.grant()
        await pass_time(0.5)
        story.kube.trouble = None
        given_back_s = time_s()
        story.release(consumer, turn)
        await pass_time(1)
        assert handle.released_s == pytest.approx(given_back_s + DELAY_S, abs=0.01)
        story.kube.labels = A  # the request that hung comes late
        await pass_time(UNSURE_MS / 1000)
        assert story.kube.labels == NONE


@jumping
async def test_put_on_that_fails_is_tried_again_while_held():
    async with Story() as story:
        story.kube.trouble = UNREACHABLE
        story.grant()
        await pass_time(30)
        story.kube.trouble = None
        await pass_time(60)
        assert story.kube.labels == A


@jumping
async def test_hundred_quick_turns_leave_the_label_right():
    async with Story() as story:
        handles = []
        for number in range(100):
            consumer, turn, handle = story.grant()
            handles.append(handle)
            await pass_time(number % 7 * DELAY_S / 3)
            story.release(consumer, turn)
            await pass_time(number % 3 * DELAY_S)
        await pass_time(UNSURE_MS / 1000 + 1)
        assert all(one.released_s is not None for one in handles)
        assert story.kube.labels == NONE
        story.grant()
        await pass_time(1)
        assert story.kube.labels == A


@jumping
async def test_consumers_of_two_roles_have_two_labels():
    async with Story() as story:
        story.grant("a")
        consumer, turn, _ = story.grant("b")
        await pass_time(1)
        assert story.kube.labels == A | B
        story.release(consumer, turn)
        await pass_time(1)
        assert story.kube.labels == A


@jumping
async def test_close_takes_the_labels_off_in_bounded_time():
    async with Story() as story:
        story.grant()
        await pass_time(1)
        await story.labeller.close()
        assert story.kube.labels == NONE
    async with Story(at_start="hangs") as story:
        began_s = time_s()
        await story.labeller.close()
        assert time_s() - began_s == pytest.approx(RELEASE_WAIT_S - 1, abs=0.01)


def test_trouble_costs_one_line_a_minute(caplog):
    caplog.set_level(logging.INFO, "rink.sidecar")

    def lines():
        return [record.getMessage() for record in caplog.records]

    @jumping
    async def tell():
        async with Story(at_start=BROKEN) as story:
            await pass_time(3 * REPORT_INTERVAL_S)
            said = [line for line in lines() if "cannot change" in line]
            assert 2 <= len(said) <= 4
            assert "answered 500" in said[0]
            story.kube.trouble = None
            await pass_time(60)
            assert lines()[-1] == "the labels of the pod can be changed again"
            for _ in range(60):  # one that fails now and then
                story.kube.trouble = BROKEN
                consumer, turn, _ = story.grant()
                await pass_time(0.5)
                story.kube.trouble = None
                story.release(consumer, turn)
                await pass_time(0.5)
            assert sum("labels of the pod" in line for line in lines()) <= len(said) + 5

    tell()


@jumping
async def test_error_that_nobody_foresaw_is_tried_again():
    async with Story(at_start=RuntimeError("a bug")) as story:
        story.kube.trouble = None
        await pass_time(60)
        assert story.kube.labels == NONE

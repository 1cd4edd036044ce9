"""Test how long a member stays without a consumer.

The time counts from the last sign of life of a consumer.
"""

import pytest
from sidecar_apart import Sidecar, run

from rink.sidecar.membership import Membership

ABSENT_S = 10.0


class Story(Sidecar):
    def __init__(self):
        super().__init__()
        self.membership = Membership(self.service, lambda: None, ABSENT_S)
        self.service.member = self.member

    def pass_s(self, seconds):
        """Let time pass, step by step."""
        for _ in range(round(seconds * 10)):
            self.clock.now_ms += 100
            with self.service.changing():
                pass

    @property
    def left_s(self):
        assert self.service.turns.consumers == {}
        return pytest.approx(self.membership.absence_left_s, abs=0.15)


@run
async def test_killed_poller_counts_from_its_last_call():
    story = Story()
    await story.held("leader", alive=5)
    story.pass_s(5 + 9 + 0.2)  # it was alive for 5 s, and its last end was 9 s ahead
    assert story.left_s == 0.0


@run
async def test_closed_stream_counts_from_its_close():
    story = Story()
    async with story.stream(roles=["leader"]) as stream:
        await stream.event()
        story.pass_s(60)
        story.grant("leader")
        await stream.event()
        story.pass_s(60)
    story.pass_s(9.2)
    assert story.left_s == ABSENT_S - 9.2


@run
async def test_wait_without_a_grant_counts_from_its_end():
    story = Story()
    await story.post("/v1/hold", {"roles": ["leader"], "wait": 0.01})
    assert story.left_s == ABSENT_S


@run
async def test_roles_given_back_count_from_their_release():
    story = Story()
    answer = await story.held("leader")
    story.pass_s(6)
    await story.post("/v1/release", {"grant": answer["grant"], "role": "leader"})
    story.pass_s(9.2)  # meanwhile the release may come again
    assert story.left_s == ABSENT_S - 9.2

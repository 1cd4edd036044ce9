"""Test each call of the API."""

import asyncio
import errno

import pytest
from sidecar_apart import Sidecar, run, until

from rink.sidecar.effects import Over
from rink.sidecar.service import LEAVES

EVENT_STREAM = {"accept": "text/event-stream"}


@run
async def test_hold_answers_with_what_is_held():
    sidecar = Sidecar()
    answer = await sidecar.held("leader", consumer="web")
    (turn,) = answer["held"]
    assert turn["role"] == "leader"
    assert turn["token"] == 7
    assert turn["state"] == "held"
    assert turn["grant"] == answer["grant"]
    assert turn["life"] == answer["life"] == sidecar.service.life
    assert turn["until_ms"] == sidecar.clock.now_ms + 9_000
    assert (turn["now_ms"], turn["left_ms"]) == (sidecar.clock.now_ms, 9_000)
    assert answer["waiting"] == []


@run
async def test_hold_whose_wait_is_over_answers_nothing_and_is_forgotten():
    sidecar = Sidecar()
    answer = (await sidecar.post("/v1/hold", {"roles": ["leader"], "wait": 0.01})).json()
    assert answer["held"] == []
    assert answer["waiting"] == [{"role": "leader", "behind": "shop-b: owns it in version 3"}]
    assert sidecar.service.turns.consumers == {}
    assert (await sidecar.post("/v1/renew", {"grant": answer["grant"]})).status_code == 410


@run
async def test_hold_answers_at_the_first_role_and_the_rest_by_renew():
    sidecar = Sidecar()
    calling = asyncio.create_task(sidecar.post("/v1/hold", {"roles": ["a", "b"], "wait": 30}))
    await until(lambda: len(sidecar.member.wanted) == 2)
    sidecar.grant("b")
    answer = (await calling).json()
    assert [turn["role"] for turn in answer["held"]] == ["b"]
    sidecar.grant("a", 8)
    renewed = (await sidecar.post("/v1/renew", {"grant": answer["grant"]})).json()
    assert [turn["role"] for turn in renewed["held"]] == ["b", "a"]


@run
async def test_renew_moves_the_end_on_and_says_what_is_lost():
    sidecar = Sidecar()
    answer = await sidecar.held("leader")
    turn = sidecar.service.turns.turn("leader")
    sidecar.service.lost(turn, "version 4 changed the owner")
    sidecar.clock.now_ms += 5_000
    (renewed,) = (await sidecar.post("/v1/renew", {"grant": answer["grant"]})).json()["held"]
    assert renewed["state"] == "lost"
    assert renewed["why"] == "version 4 changed the owner"
    assert renewed["until_ms"] == sidecar.clock.now_ms + 9_000


@run
async def test_renew_says_that_a_turn_is_lost_until_it_is_answered():
    sidecar = Sidecar()
    answer = await sidecar.held("leader", alive=60)
    grant = {"grant": answer["grant"]}
    sidecar.member.is_live = False  # so its end is not moved on
    sidecar.clock.now_ms += 9_000
    sidecar.service._wake()
    assert sidecar.member.let_gone == ["leader"]
    sidecar.member.is_live = True
    for _ in range(2):
        (renewed,) = (await sidecar.post("/v1/renew", grant)).json()["held"]
        assert (renewed["state"], renewed["token"], renewed["left_ms"]) == ("lost", 7, 0)
    body = {**grant, "role": "leader", "token": 7}
    assert (await sidecar.post("/v1/release", body)).status_code == 204
    renewed = (await sidecar.post("/v1/renew", grant)).json()
    assert renewed["held"] == []
    assert [one["role"] for one in renewed["waiting"]] == ["leader"]


@run
async def test_release_frees_the_role_before_it_answers_and_may_be_repeated():
    sidecar = Sidecar()
    answer = await sidecar.held("leader")
    body = {"grant": answer["grant"], "role": "leader", "token": 7}
    assert (await sidecar.post("/v1/release", body)).status_code == 204
    assert sidecar.member.let_gone == ["leader"]
    waiting = {"roles": ["other"], "wait": 0}
    await sidecar.post("/v1/hold", waiting)
    assert (await sidecar.post("/v1/release", body)).status_code in (204, 410)


@run
async def test_release_of_another_consumers_turn_is_a_conflict():
    sidecar = Sidecar()
    await sidecar.held("leader")
    other = await sidecar.held("other")
    body = {"grant": other["grant"], "role": "leader"}
    refused = await sidecar.post("/v1/release", body)
    assert refused.status_code == 409
    assert "not this grant's" in refused.json()["error"]


@run
async def test_unknown_grant_is_gone():
    sidecar = Sidecar()
    for path, body in (
        ("/v1/renew", {"grant": "x"}),
        ("/v1/release", {"grant": "x", "role": "a"}),
    ):
        answer = await sidecar.post(path, body)
        assert answer.status_code == 410
        assert "hold the roles anew" in answer.json()["error"]
    assert (await sidecar.post("/v1/hold", {"grant": "x"}, **EVENT_STREAM)).status_code == 410


@pytest.mark.parametrize(
    "more", [{"alive": 5}, {"on_close": "release"}, {"wait": 5}, {"consumer": "web"}]
)
@run
async def test_resume_that_would_change_its_hold_is_refused(more):
    sidecar = Sidecar()
    answer = await sidecar.held("leader", alive=60)
    body = {"grant": answer["grant"], **more}
    async with asyncio.timeout(10):  # a stream would never end
        refused = await sidecar.post("/v1/hold", body, **EVENT_STREAM)
    assert refused.status_code == 400
    assert f'"{next(iter(more))}" was given with the roles' in refused.json()["error"]


@run
async def test_role_says_until_when_and_why_not():
    sidecar = Sidecar()
    await sidecar.held("BTC/ETH")
    held = (await sidecar.get("/v1/role", name="BTC/ETH")).json()
    assert (held["held"], held["state"], held["left_ms"]) == (True, "held", 9_000)
    sidecar.clock.now_ms += 9_000
    over = (await sidecar.get("/v1/role", name="BTC/ETH")).json()
    assert not over["held"]
    other = await sidecar.get("/v1/role", name="other", fail="")
    assert other.status_code == 404
    assert other.json()["why"] == "shop-b: owns it in version 3"


@run
async def test_role_that_is_lost_is_held_until_its_end():
    sidecar = Sidecar()
    await sidecar.held("leader")
    turn = sidecar.service.turns.turn("leader")
    sidecar.service.lost(turn, "version 4")
    fields = (await sidecar.get("/v1/role", name="leader")).json()
    assert (fields["held"], fields["state"], fields["why"]) == (True, "lost", "lost: version 4")


@run
async def test_drain_is_final():
    sidecar = Sidecar()
    assert (await sidecar.client.post("/v1/drain")).status_code == 202
    refused = await sidecar.post("/v1/hold", {"roles": ["leader"]})
    assert refused.status_code == 503
    assert refused.json() == {"error": LEAVES}, "not the operator's words"
    sidecar.member.left.set()
    assert (await sidecar.client.post("/v1/drain?wait=5")).status_code == 200


@run
async def test_drain_that_is_one_wait_too_many_is_answered_at_once(monkeypatch):
    """Its connection could be the last one, which a renewal needs."""
    monkeypatch.setattr("rink.sidecar.http_api.MAX_CALLS", 0)
    sidecar = Sidecar()
    async with asyncio.timeout(10):
        assert (await sidecar.client.post("/v1/drain?wait=300")).status_code == 202
    assert sidecar.service.draining


@run
async def test_status_shows_consumers_without_their_secrets():
    sidecar = Sidecar()
    answer = await sidecar.held("leader", consumer="web")
    status = await sidecar.get("/v1/status")
    assert status.json()["consumers"][0]["turns"][0]["role"] == "leader"
    assert answer["grant"] not in status.text


@run
async def test_members_of_a_group_that_is_not_joined_say_why():
    sidecar = Sidecar()
    sidecar.member.trouble = "etcd is away"
    for path in ("/v1/members", "/v1/history"):
        answer = await sidecar.get(path)
        assert answer.status_code == 409
        assert "etcd is away" in answer.json()["error"]


@run
async def test_unknown_paths_and_methods_are_answered_in_words():
    sidecar = Sidecar()
    assert "no such call" in (await sidecar.get("/v1/hold/x")).json()["error"]
    answer = await sidecar.get("/v1/hold")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"


@run
async def test_stream_tells_grant_renewal_loss_and_end():
    sidecar = Sidecar()
    async with sidecar.stream(roles=["a"], consumer="web") as stream:
        kind, fields = await stream.event()
        assert (kind, fields["behind"]) == ("waiting", "shop-b: owns it in version 3")
        sidecar.grant("a")
        kind, granted = await stream.event()
        assert (kind, granted["token"], granted["state"]) == ("granted", 7, "held")
        assert "left_ms" not in granted
        sidecar.clock.now_ms += 3_001
        sidecar.service._wake()
        kind, fields = await stream.event()
        assert (kind, fields["roles"]) == ("renewed", ["a"])
        assert fields["until_ms"] == granted["until_ms"] + 3_001
        sidecar.service.lost(sidecar.service.turns.turn("a"), "version 4")
        kind, fields = await stream.event()
        assert (kind, fields["state"], fields["why"]) == ("lost", "lost", "version 4")
        body = {"grant": granted["grant"], "role": "a", "token": 7}
        assert (await sidecar.post("/v1/release", body)).status_code == 204
        kind, fields = await stream.event()
        assert (kind, fields["role"]) == ("waiting", "a")
        sidecar.service.say_bye("draining: SIGTERM")
        kind, fields = await stream.event()
        assert (kind, fields["why"]) == ("bye", "draining: SIGTERM")
        assert fields["id"] == f"{sidecar.service.life}:6"


@run
async def test_resumed_stream_begins_with_all_that_is_so():
    sidecar = Sidecar()
    async with sidecar.stream(roles=["a", "b"]) as stream:
        await stream.event()
        await stream.event()
        sidecar.grant("a")
        _, granted = await stream.event()
    async with sidecar.stream(grant=granted["grant"]) as again:
        kind, fields = await again.event()
        assert (kind, fields["role"], fields["token"]) == ("granted", "a", 7)
        assert (await again.event())[0] == "waiting"
    sidecar.clock.now_ms += 9_000
    sidecar.service._wake()
    assert sidecar.member.let_gone == ["a"]


@run
async def test_stream_tells_a_loss_when_an_end_has_passed():
    sidecar = Sidecar()
    async with sidecar.stream(roles=["a"]) as stream:
        await stream.event()
        sidecar.grant("a")
        _, granted = await stream.event()
        sidecar.member.is_live = False
        sidecar.clock.now_ms += 9_000
        sidecar.service._wake()
        kind, fields = await stream.event()
        assert (kind, fields["state"], fields["token"]) == ("lost", "lost", 7)
        async with sidecar.stream(grant=granted["grant"]) as again:
            assert (await again.event())[0] == "lost"


@run
async def test_stream_that_finds_an_end_passed_tells_the_loss_once():
    sidecar = Sidecar()
    async with sidecar.stream(roles=["a"]) as first:
        await first.event()
        sidecar.grant("a")
        _, granted = await first.event()
        sidecar.member.is_live = False
        sidecar.clock.now_ms += 9_000  # a process that was stopped hears the new stream first
        async with sidecar.stream(grant=granted["grant"]) as second:
            assert (await second.event())[0] == "lost"
            sidecar.service.say_bye("a test")
            assert (await second.event())[0] == "bye"


@run
async def test_second_stream_of_a_grant_ends_the_first():
    sidecar = Sidecar()
    async with sidecar.stream(roles=["a"]) as first:
        _, fields = await first.event()
        async with sidecar.stream(grant=fields["grant"]) as second:
            assert (await first.event())[0] == "bye"
            assert (await second.event())[0] == "waiting"
            sidecar.grant("a")
            assert (await second.event())[0] == "granted"


@run
async def test_released_turn_is_told_by_no_later_event():
    sidecar = Sidecar()
    async with sidecar.stream(roles=["a", "b"]) as stream:
        _, fields = await stream.event()
        await stream.event()
        sidecar.grant("a")
        body = {"grant": fields["grant"], "role": "a", "token": 7}
        sidecar.service.release(sidecar.service.turns.consumers[fields["grant"]], "a", 7)
        assert (await sidecar.post("/v1/release", body)).status_code == 204
        sidecar.grant("b", 9)
        kind, fields = await stream.event()
        assert (kind, fields["role"]) == ("granted", "b")


@run
async def test_close_of_a_stream_that_releases_lets_go_at_once():
    sidecar = Sidecar()
    async with sidecar.stream(roles=["a"], on_close="release") as stream:
        await stream.event()
        sidecar.grant("a")
        await stream.event()
        stream.close()
        await until(lambda: sidecar.member.let_gone == ["a"])


@run
async def test_call_that_is_given_up_as_it_is_granted_keeps_the_end_told():
    """Files and GET /v1/role may have shown the end by then."""
    sidecar = Sidecar()
    async with sidecar.call(roles=["a"], wait=30, alive=60) as call:
        await until(lambda: sidecar.member.wanted)
        turn = sidecar.grant("a")
        call.close()
    assert sidecar.member.let_gone == []
    sidecar.clock.now_ms = turn.until_ms
    with sidecar.service.changing():
        pass
    assert sidecar.member.let_gone == ["a"]
    assert sidecar.service.turns.consumers == {}


@run
async def test_consumer_whose_stream_was_closed_waits_only_while_it_renews():
    """Its stream is no open call, so a dead program keeps no place in a queue."""
    sidecar = Sidecar()
    async with sidecar.stream(roles=["a"], alive=4) as stream:
        _, fields = await stream.event()
        turn = sidecar.grant("a")
        await stream.event()
    await sidecar.post("/v1/renew", {"grant": fields["grant"]})
    sidecar.service.lost(turn, "version 7 changed the owner")
    await sidecar.post("/v1/release", {"grant": fields["grant"], "role": "a", "token": 7})
    assert sidecar.member.wanted == ["a"]
    sidecar.clock.now_ms += 4_000
    with sidecar.service.changing():
        pass
    assert sidecar.service.turns.consumers == {}
    assert sidecar.member.wanted == []


@run
async def test_stream_that_cannot_be_written_to_is_cut_and_is_no_answer():
    sidecar = Sidecar()
    async with sidecar.stream(roles=["a"], on_close="release") as stream:
        await stream.event()
        turn = sidecar.grant("a")
        stream.abort()
        await until(lambda: turn.consumer.stream is None)
        assert sidecar.member.let_gone == []


@run
async def test_call_that_is_given_up_while_it_waits_leaves_nothing():
    sidecar = Sidecar()
    calling = asyncio.create_task(sidecar.post("/v1/hold", {"roles": ["a"], "wait": 30}))
    await until(lambda: sidecar.member.wanted)
    calling.cancel()
    await until(lambda: not sidecar.service.turns.consumers)
    assert sidecar.member.wanted == []


@run
async def test_idle_stream_says_so_and_whom_it_waits_for_now(monkeypatch):
    monkeypatch.setattr("rink.sidecar.event_stream.IDLE_INTERVAL_S", 0.01)
    sidecar = Sidecar()
    async with sidecar.stream(roles=["a"]) as stream:
        assert (await stream.event())[1]["behind"] == "shop-b: owns it in version 3"
        sidecar.member.obstacle = lambda _: "shop-c: owns it in version 4"
        kind, fields = await stream.event()
        assert (kind, fields["behind"]) == ("waiting", "shop-c: owns it in version 4")
        await until(lambda: stream._sent.qsize() > 2)
        assert all(b"event" not in stream._sent.get_nowait()["body"] for _ in range(3))


@run
async def test_pod_grant_is_known_to_no_caller():
    sidecar = Sidecar()
    sidecar.service.hold_for_pod(["leader"])
    turn = sidecar.grant("leader")
    for grant in ("pod", "", "default"):
        body = {"grant": grant, "role": "leader"}
        assert (await sidecar.post("/v1/release", body)).status_code in (400, 410)
    assert not turn.is_over
    assert turn.consumer.grant not in (await sidecar.get("/v1/status")).text
    assert len(turn.consumer.grant) == 32


@run
async def test_error_of_an_effect_is_a_failure_of_the_sidecar():
    sidecar = Sidecar()
    failures = []

    def break_down(effect):
        if isinstance(effect, Over):
            raise OSError(errno.EIO, "the folder of ends is gone")

    sidecar.service.on_change.append(break_down)
    sidecar.member.fail = failures.append
    await sidecar.held("leader")
    sidecar.clock.now_ms += 9_000
    sidecar.service._timer.cancel()
    with pytest.raises(OSError, match="folder of ends"):
        sidecar.service._wake()  # on the event loop, nobody would see it
    assert [str(failure) for failure in failures] == ["[Errno 5] the folder of ends is gone"]


@run
async def test_call_that_is_cancelled_as_it_is_granted_keeps_its_end():
    sidecar = Sidecar()
    calling = asyncio.create_task(sidecar.post("/v1/hold", {"roles": ["a"], "wait": 30}))
    await until(lambda: sidecar.member.wanted)
    turn = sidecar.grant("a")  # files show its end from now on
    calling.cancel()
    await until(calling.done)
    assert not turn.is_over
    sidecar.clock.now_ms = turn.until_ms
    with sidecar.service.changing():
        pass
    assert turn.is_over
    assert sidecar.service.turns.consumers == {}


@run
async def test_hold_that_waits_when_the_sidecar_has_left_is_ended():
    sidecar = Sidecar()
    body = {"roles": ["a"], "wait": 3_600, "alive": 3_600}
    calling = asyncio.create_task(sidecar.post("/v1/hold", body))
    await until(lambda: sidecar.member.wanted)
    sidecar.member.drain("SIGTERM; a second signal ends the wait for a successor")
    sidecar.member.left.set()
    answer = await asyncio.wait_for(calling, 5)
    assert (answer.status_code, answer.json()) == (503, {"error": LEAVES})
    assert sidecar.service.turns.consumers == {}
    assert sidecar.member.wanted == []


@run
async def test_stream_that_is_opened_when_the_sidecar_has_left_ends():
    sidecar = Sidecar()
    answer = await sidecar.held("a", alive=60)
    sidecar.service.say_bye(LEAVES)
    async with sidecar.stream(grant=answer["grant"]) as stream:
        assert (await stream.event())[0] == "granted"
        assert (await stream.event())[1]["why"] == LEAVES

"""Test who may call: hosts, browser pages, content types, tokens, bodies."""

import json

import pytest
from sidecar_apart import Sidecar, run

from rink.errors import ConfigError
from rink.sidecar.access import Bearer

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8181", "localhost:8181", "LOCALHOST:8181", "127.1.2.3:8181", "[::1]:8181"]
)
@run
async def test_host_of_loopback_is_let_through(host):
    answer = await Sidecar().client.get("/v1/status", headers={"host": host})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example:8181", "127.0.0.1.evil.example:8181", "10.0.0.1:8181", "127.0.0.1:80",
     "127.0.0.1", "localhost", "", "[::ffff:10.0.0.1]:8181", "::1:8181", "[127.0.0.1:8181",
     "localhost:8181:8181"],
)  # fmt: skip
@run
async def test_host_of_a_page_that_was_bound_anew_is_refused(host):
    answer = await Sidecar().client.get("/v1/status", headers={"host": host})
    assert answer.status_code == 421
    assert "loopback" in answer.json()["error"]


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://127.0.0.1:8181"}, {"origin": "null"}, {"sec-fetch-site": "same-origin"},
     {"sec-fetch-site": "cross-site"}],
)  # fmt: skip
@run
async def test_requests_of_pages_are_refused(headers):
    sidecar = Sidecar()
    assert (await sidecar.client.get("/v1/status", headers=headers)).status_code == 403
    assert (await sidecar.client.post("/v1/drain", headers=headers)).status_code == 403
    assert not sidecar.member.drained


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"]
)
@run
async def test_post_of_another_content_type_is_refused(kind):
    answer = await Sidecar().client.post(
        "/v1/renew", content='{"grant": "x"}', headers={"content-type": kind}
    )
    assert answer.status_code == 415


@run
async def test_content_type_may_name_a_character_set():
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    answer = await Sidecar().client.post("/v1/renew", content='{"grant": "x"}', headers=headers)
    assert answer.status_code == 410


@run
async def test_doubled_header_is_refused():
    headers = [("host", "127.0.0.1:8181"), ("authorization", "a"), ("authorization", "b")]
    assert (await Sidecar().client.get("/v1/status", headers=headers)).status_code == 400


@run
async def test_token_is_asked_for_and_read_again_when_it_changes(tmp_path):
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    sidecar = Sidecar(Bearer(path))

    async def status(token, scheme="Bearer"):
        headers = {"authorization": f"{scheme} {token}"}
        return (await sidecar.client.get("/v1/status", headers=headers)).status_code

    assert (await sidecar.client.get("/v1/status")).status_code == 401
    assert await status(TOKEN) == 200
    assert await status(TOKEN, "bearer") == 200
    assert await status(TOKEN, "Basic") == 401
    assert await status(TOKEN[:-1]) == 401
    path.with_suffix(".new").write_text(TOKEN[::-1])
    path.with_suffix(".new").rename(path)
    assert await status(TOKEN) == 401
    assert await status(TOKEN[::-1]) == 200
    path.unlink()
    assert await status(TOKEN[::-1]) == 200


@pytest.mark.parametrize(("text", "says"), [(None, "No such file"), ("short", "has 5 bytes")])
def test_token_file_that_cannot_be_used_is_an_error(tmp_path, text, says):
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        Bearer(path)


LONG = "x" * 513


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ("[" * 20_000, "no JSON"),
        ("[]", "JSON object"),
        ("{}", 'give either "roles"'),
        ('{"roles": []}', 'give either "roles"'),
        ('{"roles": "leader"}', "list of names"),
        ('{"roles": [1]}', "list of names"),
        ('{"roles": [""]}', "1 to 512 bytes"),
        (json.dumps({"roles": [LONG]}), "1 to 512 bytes"),
        (json.dumps({"roles": ["é" * 257]}), "1 to 512 bytes"),
        ('{"roles": ["a\\u0000"]}', "control characters"),
        ('{"roles": ["a\\n"]}', "control characters"),
        ('{"roles": ["\\ud800"]}', "valid Unicode"),
        (json.dumps({"roles": [f"r{i}" for i in range(1001)]}), "more than the 1,000"),
        ('{"roles": ["a"], "role": "a"}', 'unknown field "role"'),
        ('{"roles": ["a"], "consumer": "a b"}', '"consumer" must be'),
        ('{"roles": ["a"], "consumer": ""}', '"consumer" must be'),
        ('{"roles": ["a"], "consumer": 7}', '"consumer" must be a string'),
        ('{"roles": ["a"], "wait": -1}', '"wait" must be'),
        ('{"roles": ["a"], "wait": true}', '"wait" must be'),
        ('{"roles": ["a"], "wait": 1e9}', '"wait" must be'),
        ('{"roles": ["a"], "wait": NaN}', '"wait" must be'),
        ('{"roles": ["a"], "wait": Infinity}', '"wait" must be'),
        ('{"roles": ["a"], "alive": 0.5}', '"alive" must be 1 or more'),
        ('{"roles": ["a"], "on_close": "drop"}', '"on_close" must be one of'),
        ('{"roles": ["a"], "grant": "x"}', 'give either "roles"'),
        ('{"grant": "x"}', "resumes a stream"),
    ],
)
@run
async def test_hold_with_a_bad_body_says_what_is_wrong(body, says):
    sidecar = Sidecar()
    headers = {"content-type": "application/json"}
    answer = await sidecar.client.post("/v1/hold", content=body, headers=headers)
    assert answer.status_code == 400, answer.text
    assert says in answer.json()["error"]
    assert sidecar.service.turns.consumers == {}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('{"grant": "x", "role": ""}', '"role" is missing'),
        ('{"role": "a"}', '"grant" is missing'),
        ('{"grant": "x", "role": "a", "token": "7"}', '"token" must be'),
        ('{"grant": "x", "role": "a", "token": true}', '"token" must be'),
        ('{"grant": "x", "role": "a", "token": 0}', '"token" must be'),
        ('{"grant": "x", "role": "a", "token": 9007199254740992}', '"token" must be'),
    ],
)
@run
async def test_release_with_a_bad_body_says_what_is_wrong(body, says):
    headers = {"content-type": "application/json"}
    answer = await Sidecar().client.post("/v1/release", content=body, headers=headers)
    assert answer.status_code == 400
    assert says in answer.json()["error"]


@run
async def test_body_that_is_too_large_is_refused():
    headers = {"content-type": "application/json"}
    content = b'{"roles": ["' + b"a" * 65_536 + b'"]}'
    answer = await Sidecar().client.post("/v1/hold", content=content, headers=headers)
    assert answer.status_code == 413


@pytest.mark.parametrize("wait", ["-1", "x", "nan", "inf", "3601"])
@run
async def test_drain_with_a_bad_wait_drains_nothing(wait):
    sidecar = Sidecar()
    assert (await sidecar.client.post("/v1/drain", params={"wait": wait})).status_code == 400
    assert not sidecar.member.drained


@run
async def test_roles_of_all_consumers_are_limited(monkeypatch):
    monkeypatch.setattr("rink.sidecar.http_api.MAX_ALL_ROLES", 3)
    sidecar = Sidecar()
    await sidecar.held("a", "b")
    answer = await sidecar.post("/v1/hold", {"roles": ["c", "d"]})
    assert answer.status_code == 429
    assert "may have 3 roles" in answer.json()["error"]


@run
async def test_streams_and_calls_are_limited(monkeypatch):
    monkeypatch.setattr("rink.sidecar.http_api.MAX_CALLS", 0)
    sidecar = Sidecar(max_streams=1)
    async with sidecar.stream(roles=["a"]) as stream:
        await stream.event()
        async with sidecar.stream(roles=["b"]) as second:
            await second._task
            assert second._sent.get_nowait()["status"] == 429
    answer = await sidecar.post("/v1/hold", {"roles": ["c"]})
    assert answer.status_code == 429
    assert all("c" not in one.waiting for one in sidecar.service.turns.consumers.values())

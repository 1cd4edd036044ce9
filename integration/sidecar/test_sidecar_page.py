"""The page of `rink sidecar --page`, on a real process and a real etcd."""

from __future__ import annotations

import contextlib
import html
import http.client
import json
import re
import subprocess

import pytest
from sidecar_support import FAST, RINK, wait_for

pytestmark = [pytest.mark.waits, pytest.mark.timeout(180)]


def page_of(address):
    """Return the status, the headers and the text of a page."""
    connection = http.client.HTTPConnection(address, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", "/")
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()


def test_page_shows_members_roles_and_waits(sidecar):
    one = sidecar("a", (*FAST, "--public", "127.0.0.1:0", "--page", "--name", "shop-a"))
    public = wait_for(lambda: re.search(r"probes are at http://(\S+)", one.said()))[1]
    status, headers, page = page_of(public)
    assert status == 200
    assert "absent: there is no consumer" in page
    assert headers["content-security-policy"].startswith("default-src 'none'")
    odd = "<b>leader</b>"
    held = one.call(
        "POST", "/v1/hold", {"roles": [odd], "consumer": "web", "wait": 30, "alive": 60}
    )[1]
    assert held["held"]
    waiting = http.client.HTTPConnection(one.api, timeout=30)
    with contextlib.closing(waiting):
        body = json.dumps({"roles": [odd], "consumer": "spare", "wait": 60})
        waiting.request("POST", "/v1/hold", body, {"Content-Type": "application/json"})
        page = wait_for(lambda: (found := page_of(public)[2]) and "spare" in found and found)
    assert odd not in page
    assert held["grant"] not in page
    for part in (
        odd,
        "shop-a",
        "0 of 1",
        "active",
        "web",
        "consumer web of this sidecar",
        "granted",
    ):
        assert html.escape(part) in page


def test_page_without_a_public_address_is_refused():
    line = [*RINK, "sidecar", "--group", "orders", "--public", "", "--page"]
    ended = subprocess.run(line, check=False, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "--page needs --public" in ended.stderr

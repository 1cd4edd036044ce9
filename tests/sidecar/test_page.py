"""Test the page of `--page`: escapes, limits, no grant, no member."""

import re
from html.parser import HTMLParser

import httpx
import pytest
from sidecar_apart import Clock, StandIn, run
from starlette.responses import Response

from rink.inspect.group_status import GroupStatus, MemberStatus
from rink.sidecar import public
from rink.sidecar.consumer_turns import ConsumerTurns
from rink.sidecar.consumers import Consumer
from rink.sidecar.membership import MembershipState
from rink.sidecar.page import MAX_EVENTS, MAX_ROWS, Cell, Page, Shown, TableRows, html
from rink.sidecar.service import Service

SECRET = "a-grant-that-nobody-may-see"
ODD_NAMES = [
    "<script>alert(1)</script>",
    "x" * 512,
    "a&b\"'",
    "שלום",
    "\u202eeman",
    "\ud800",
    "a\tb",
]


class Seen(HTMLParser):
    """Read a page as a browser does: elements, attributes, the body's text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes, self.text, self.rows = [], [], "", 0
        self._is_style = False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self._is_style = tag == "style"

    def handle_endtag(self, tag):
        self._is_style = False

    def handle_data(self, data):
        if not self._is_style:
            self.text += data


async def no_metrics(_):
    return Response()


class Shows:
    """Run a sidecar with a stand-in for its member, and show its page."""

    def __init__(self, has_page=True):
        self.clock = Clock()
        self.service = Service(ConsumerTurns(9_000, 30_000), self.clock)
        self.member = StandIn(self.service)
        page = Page(self.service, self.member, "orders").answer if has_page else None
        app = public.application(lambda: "", lambda: "", no_metrics, page=page)
        transport = httpx.ASGITransport(app)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://10.0.0.7:8182")

    def hold(self, *roles, name="web", token=7):
        """Add a consumer that holds its roles, except roles of another."""
        consumer = Consumer(name, f"{SECRET}-{name}", alive_ms=600_000)
        before = set(self.member.wanted)
        self.service.hold(consumer, list(roles))
        for role in [role for role in self.member.wanted if role not in before]:
            self.member.wanted.remove(role)
            self.service.granted(role, token)
        return consumer

    async def seen(self):
        """Return the page, once it is built anew."""
        self.clock.now_ms += 1_001
        answer = await self.client.get("/")
        assert answer.status_code == 200
        return answer.text


def shown(**fields):
    none = TableRows(shown=[], count=0)
    return Shown(**{
        "group": "orders", "state": Cell("joined"), "member": [], "turns": none, "waits": none,
        "status": None, "me": "shop-a", "events": none, **fields,
    })  # fmt: skip


def status(*members):
    return GroupStatus(
        group="orders", revision=1, version=1, ranks=(), scheme="", pins={}, token_base=0,
        because=(),
        by="", proclaimed="", versions_kept=1, coordinator=None, settled=True, in_the_way=(),
        members=members, absent=(), settings_differ=(), requests=(), problems=(),
    )  # fmt: skip


@pytest.mark.parametrize("name", ODD_NAMES)
def test_page_odd_names_are_text_only(name):
    member = MemberStatus(name=name, phase="active", rank=0, no_rank_because=name)
    row = TableRows(shown=[(Cell(name), Cell(name), Cell(name))], count=1)
    page = html(
        shown(
            group=name,
            member=[("member", name)],
            waits=row,
            state=Cell(name),
            status=status(member),
        )
    )
    seen = Seen(page)
    assert "script" not in seen.tags
    assert not [key for key, _ in seen.attributes if key.startswith("on") or key in ("src", "href")]
    visible = name if name.isprintable() else name.encode("unicode_escape").decode()
    assert seen.text.count(visible) >= 7
    page.encode()
    assert not re.search("[\u202a-\u202e\u2066-\u2069]", page)


def test_page_long_tables_say_how_many_rows_are_left_out():
    rows = TableRows(shown=[(Cell("a"), Cell("b"), Cell("c"))] * MAX_ROWS, count=10_000)
    members = [MemberStatus(name=f"m-{i}", phase="active", rank=i) for i in range(MAX_ROWS + 3)]
    seen = Seen(html(shown(waits=rows, status=status(*members))))
    assert "and 9,800 more" in seen.text
    assert "and 3 more" in seen.text
    assert seen.tags.count("tr") == 2 * (MAX_ROWS + 1)


@run
async def test_page_shows_roles_waits_and_events_without_a_grant():
    shows = Shows()
    prices = shows.hold("leader", "BTC/ETH", name="prices", token=41)
    shows.hold("leader", name="spare")
    shows.service.lost(prices.turns["BTC/ETH"], "version 2 changed the owner")
    shows.service.release(prices, "BTC/ETH", None)
    page = await shows.seen()
    text = Seen(page).text
    assert SECRET not in page
    for part in ("orders", "BTC/ETH", "leader", "41", "prices", "consumer prices of this sidecar"):
        assert part in text
    for part in ("granted", "lost", "over", "version 2 changed the owner"):
        assert part in text.partition("Latest events")[2]
    shows.service.close()


@run
async def test_page_with_10000_roles_is_bounded():
    shows = Shows()
    for number in range(10):
        shows.hold(*(f"r-{number}-{index}" for index in range(1_000)), name=f"c-{number}")
    page = await shows.seen()
    assert "and 9,800 more" in page
    assert page.count("<tr>") <= MAX_ROWS + MAX_EVENTS + 3
    shows.service.close()


@run
async def test_page_is_built_once_a_second():
    shows = Shows()
    first = await shows.seen()
    shows.hold("leader")
    assert (await shows.client.get("/")).text == first
    assert "leader" in await shows.seen()
    shows.service.close()


@run
async def test_page_says_why_the_group_is_not_joined():
    shows = Shows()
    shows.member.state, shows.member.trouble = MembershipState.JOINING, "no etcd at <http://x>"
    assert "joining: no etcd at <http://x>" in Seen(await shows.seen()).text
    shows.member.state, shows.member.trouble = MembershipState.JOINED, ""
    shows.member.is_live = False
    assert "the session is lost" in await shows.seen()
    shows.service.draining = "SIGTERM"
    assert "draining: SIGTERM" in await shows.seen()


@run
async def test_page_is_answered_to_get_and_head_only():
    shows = Shows()
    answer = await shows.client.get("/")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert (await shows.client.head("/")).status_code == 200
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert (await shows.client.request(method, "/")).status_code == 405


@run
async def test_page_is_not_there_unless_asked_for():
    assert (await Shows(has_page=False).client.get("/")).status_code == 404

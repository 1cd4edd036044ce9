"""Test clutter in the key range.

Clutter is a key that is not a member's, or that cannot be read. It is there before the group
starts, or is put there later.

Clutter without a lease claims nothing. Clutter with a lease that cannot be read claims everything:
held roles stay held, and no role is granted until it is gone. All of it is reported, and removed as
R8 says.
"""

import concurrent.futures
import json
from collections.abc import Callable

import attrs
import pytest
from faults_members_group import row_of_all
from faults_members_support import until
from members import LONG_S

from rink.core import codec
from rink.core.keys import Keys
from rink.core.member_record import MemberRecord, Share
from rink.engine.clock import SYSTEM
from rink.etcd.api import Delete, Put
from rink.etcd.client import Client
from rink.testing.history import Judgement

pytestmark = pytest.mark.waits

pytest_plugins = ["faults_members_fixtures"]

ROLES = [f"role-{number}" for number in range(12)]
NEW = [f"new-{number}" for number in range(12)]
TTL_S = 10
"""No member dies here. Many groups run at once, so a short lease could end meanwhile."""
GHOST_TTL_S = 2
HUGE = b"x" * 1_000_000
NOT_JSON = b"\xff{ not JSON"

CLAIM = MemberRecord("ghost", GHOST_TTL_S, shares=(Share(0, 1, "jump"),), draining=tuple(ROLES))
FUTURE = json.dumps({"format": 99, "shares": "as they will be"}).encode()


@attrs.frozen
class Clutter:
    """Describe one key to put into the range.

    `at` says where, given the group's keys and its newest version.
    """

    name: str
    at: Callable[[Keys, int], bytes]
    value: bytes
    says: str
    leased: bool = False
    bars: bool = False
    removed: bool = False


def ghost(keys, _):
    return keys.member("ghost")


def next_version(keys, number):
    return keys.version(number + 1)


def foreign(segment):
    return lambda keys, _: keys.root + segment


CASES = [
    Clutter(
        "a record without a lease",
        ghost,
        codec.encode(CLAIM),
        "has no lease: it claims nothing",
        removed=True,
    ),
    Clutter("a record of garbage without a lease", ghost, NOT_JSON, "is not JSON"),
    Clutter("a huge record without a lease", ghost, HUGE, "is not JSON"),
    Clutter("a future record without a lease", ghost, FUTURE, "has format 99"),
    Clutter("a record of garbage", ghost, NOT_JSON, "is not JSON", leased=True, bars=True),
    Clutter("a huge record", ghost, HUGE, "is not JSON", leased=True, bars=True),
    Clutter("a future record", ghost, FUTURE, "has format 99", leased=True, bars=True),
    Clutter("a future version", next_version, FUTURE, "has format 99", bars=True),
    Clutter("a version of garbage", next_version, NOT_JSON, "is not JSON", bars=True),
    Clutter("a future request", lambda keys, _: keys.request("r"), FUTURE, "has format 99"),
    Clutter("a foreign key", foreign(b"whose/is/this"), b"", "not a key that Rink writes"),
    Clutter("a key that is no text", foreign(b"\xff\xfe"), b"", "not a key that Rink writes"),
    Clutter("a key of no name", foreign(b"members/%zz"), b"{}", "not a key that Rink writes"),
    Clutter("a huge foreign value", foreign(b"huge"), HUGE, "not a key that Rink writes"),
]  # fmt: skip


def put(client, group, clutter, number):
    """Put it there; its key, and what takes it away again."""
    key = clutter.at(Keys.of(group.prefix, "g"), number)
    lease = client.grant(60).lease if clutter.leased else 0
    client.txn((), (Put(key, clutter.value, lease),))
    if clutter.leased:
        return key, lambda: client.revoke(lease)
    return key, lambda: client.txn((), (Delete(key),))


def reported(members, clutter):
    """Wait until each member has logged the fault of the clutter."""
    for member in members:
        until(lambda member=member: any(clutter.says in text for _, text in member.logged))


def taken(members):
    """Return the granted roles when members ask for roles new to the group."""
    found = sorted(role for one in members for role in one.ask("take", NEW, True)["taken"])
    for member in members:
        member.ask("release", True)
    return found


def there_before(group, client, clutter) -> float:
    """Let two members join where the clutter lies already."""
    since = SYSTEM.now()
    key, remove = put(client, group, clutter, 0)
    pair = [group.joined("a"), group.joined("b")]
    # The first member may remove the clutter before the second joins.
    reported(pair[:1] if clutter.removed else pair, clutter)
    if clutter.bars:
        until(lambda: pair[0].ask("status")["coordinates"])
        assert taken(pair) == []
        assert group.history.judge().grants == ()
        reason = pair[0].ask("why_not", ROLES[0], 0.2)["because"]
        assert clutter.says in reason or "no version" in reason or "owns it" in reason, reason
        remove()
    group.settle()
    assert taken(pair) == sorted(NEW)
    ended(group, client, clutter, key)
    return since


def put_there_later(group, client, clutter) -> float:
    """Put the clutter there when two members hold roles; let a third join."""
    pair = [group.joined("a"), group.joined("b")]
    group.settle()
    since = SYSTEM.now()
    key, remove = put(client, group, clutter, pair[0].ask("status")["version"])
    # The member that coordinates may remove the clutter before the other one looks.
    reported(pair[:1] if clutter.removed else pair, clutter)
    assert not [gap for gap in group.history.judge().gaps if gap.begin > since]  # all is held
    if clutter.bars:
        assert taken(pair) == []
        third = group.joined("c")
        reported([third], clutter)
        assert taken([third]) == []
        assert group.history.judge().gains(since) == {}
        remove()
    else:
        group.joined("c")
    group.settle()
    assert taken(group.alive) == sorted(NEW)
    ended(group, client, clutter, key)
    return since


def is_logged(group, words):
    return any(words in text for member in group.alive for _, text in member.logged)


def ended(group, client, clutter, key):
    """Assert that a dead record is removed after its ttl.

    Clutter that is not a member's is left alone.
    """
    if clutter.removed:
        until(lambda: not client.range(key).kvs, GHOST_TTL_S + LONG_S)
        until(lambda: is_logged(group, "removing record members/ghost"))  # a moment after it is
    elif not clutter.bars:
        assert client.range(key).kvs[0].value == clutter.value
    assert group.alive[0].ask("status")["coordinates"]


@pytest.mark.parametrize("when", [there_before, put_there_later])
def test_clutter_grants_nothing_wrongly_and_is_reported(group_of, etcd_url, record, when):
    groups = [group_of(ROLES, TTL_S) for _ in CASES]

    def run(group, clutter) -> tuple[Judgement, float]:
        with Client([etcd_url]) as client:
            try:
                since = when(group, client, clutter)
            except Exception as error:
                error.add_note(f"clutter: {clutter.name}")
                raise
        judgement = group.history.judge()
        assert judgement.problems == [], clutter.name
        assert judgement.refused == 0
        return judgement, since

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        judged = list(pool.map(run, groups, CASES))
    said = when.__name__.replace("_", " ")
    record(row_of_all(f"clutter {said}: {len(CASES)} kinds", "1 node", judged))

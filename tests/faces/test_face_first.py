"""Check `scheme="first"`: the leader moves only when its holder goes."""

import pytest
from faces_support import LONG_S, until


class Grants:
    """Return the grants of `leader` in order, by the members' callbacks."""

    def __init__(self, world, scheme):
        self.world, self.scheme = world, scheme
        self.names = []

    def join(self, name, **settings):
        """Join a member that leads whenever it can."""

        def note(role, held):
            if held:
                self.names.append(name)

        member = self.world.make(name, scheme=self.scheme, on_role_change=note, **settings).join()
        member.on_role("leader")(lambda role: role.lost.wait(LONG_S))
        return member


def settle(members, size):
    for member in members:
        until(member, lambda member=member: member.size == size and member.wait_settled(0.1))


@pytest.mark.parametrize("scheme", ["first", "first:leader"])
def test_leader_by_first_is_granted_once_while_the_group_grows(world, scheme):
    grants = Grants(world, scheme)
    members = []
    for count, name in enumerate("abcde", start=1):
        members.append(grants.join(name))
        settle(members, count)
    until(members[0], lambda: grants.names)
    assert grants.names == ["a"]
    assert [member.owner("leader") for member in members] == ["a"] * 5


def test_leader_by_first_moves_once_in_a_surge_deploy(world):
    """Each new member waits until an old one leaves, and takes its rank."""
    grants = Grants(world, "first")
    old = [grants.join(name) for name in "abcde"]
    settle(old, 5)
    new = []
    for index, leaver in enumerate(old):
        new.append(grants.join(f"new-{index}", rebalance_delay=3600.0))
        leaver.leave()
        settle([*old[index + 1 :], *new], 5)
    until(new[0], lambda: len(grants.names) > 1)
    assert grants.names == ["a", "new-0"]
    more = [grants.join(f"later-{index}") for index in range(2)]
    settle([*new, *more], 7)
    for member in (new[4], more[1]):
        member.leave()
    settle([new[0]], 5)
    assert grants.names == ["a", "new-0"]
    assert new[0].version.ranks[0] == "new-0"


def test_roles_named_by_first_stay_and_the_others_spread(world):
    scheme = "first:leader,poller|balanced:4"
    members = [world.join(name, scheme=scheme) for name in "ab"]
    settle(members, 2)
    owners = [members[0].owner(f"orders/{number}") for number in range(4)]
    assert owners == ["a", "a", "b", "b"]
    assert {members[1].owner("leader"), members[1].owner("poller")} == {"a"}

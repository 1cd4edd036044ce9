"""Test the memory of ranks, also when a user's function fails."""

import pytest

from rink.core import placement, schemes
from rink.core.placement import Placement


@pytest.fixture
def calls(monkeypatch):
    monkeypatch.setattr(schemes, "_custom", {})
    return []


def register(calls, broken=()):
    def rank(role, size):
        calls.append(role)
        if role in broken:
            raise ValueError("no such role")
        return len(role) % size

    name = schemes.register(rank, "mine", 1)
    calls.clear()
    return name


def test_scheme_is_called_once_per_role_and_size(calls):
    scheme, places = register(calls), Placement()
    assert [places.rank("ab", scheme, 2) for _ in range(3)] == [0, 0, 0]
    assert places.rank("ab", scheme, 3) == 2
    assert calls == ["ab", "ab"]
    assert places.ranks(scheme, 2) == {"ab": 0}


def test_role_that_a_scheme_fails_for_has_no_rank_and_others_go_on(calls):
    scheme, places = register(calls, broken=["poison"]), Placement()
    assert places.rank("poison", scheme, 2) is None
    assert places.rank("poison", scheme, 2) is None
    assert calls == ["poison"]
    assert "poison" in str(places.failed[scheme])
    assert places.can_follow(scheme)
    assert places.rank("abc", scheme, 2) == 1


def test_unknown_scheme_may_be_registered_later(calls):
    scheme, places = "mine@1#000000000000", Placement()
    assert places.rank("abc", scheme, 2) is None
    assert not places.can_follow(scheme)
    scheme = register(calls)
    assert places.rank("abc", scheme, 2) == 1


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(placement, "MAX_REMEMBERED", 10)
    places = Placement()
    for index in range(25):
        assert places.rank(f"role-{index}", "jump", 3) in range(3)
    assert len(places.ranks("jump", 3)) == 10


def test_full_memory_forgets_nothing_before_the_engine_says_so(calls, monkeypatch):
    """Let a caller's thread fill the memory during a step (R2).

    The step must not call the scheme then.
    """
    monkeypatch.setattr(placement, "MAX_REMEMBERED", 10)
    scheme, places = register(calls), Placement()
    for role in ("early", *map(str, range(100, 120))):
        places.rank(role, scheme, 3)
    places.rank("late", scheme, 3, bounded=False)
    calls.clear()
    assert (places.rank("early", scheme, 3), places.rank("late", scheme, 3)) == (2, 1)
    places.trim(lambda: {"early", "late", "unknown"})
    assert places.ranks(scheme, 3) == {"early": 2, "late": 1}
    assert calls == []


def test_memory_with_room_is_not_trimmed():
    places = Placement()
    places.rank("x", "jump", 3)
    places.trim(set())
    assert places.ranks("jump", 3)


def test_sizes_that_no_share_names_are_forgotten():
    places = Placement()
    for size in (1, 2, 3):
        places.rank("x", "jump", size)
    places.forget_all_but(frozenset({("jump", 2), ("jump", 9)}))
    assert places._ranks.keys() == {("jump", 2)}

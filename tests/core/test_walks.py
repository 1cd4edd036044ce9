"""Walk by seeds through worlds in which everything goes wrong.

`walks` has the world of a walk. `World` checks after every step that no role is held by two members
whose records stand, that tokens rise from member to member, and that no step leaves work undone or
wakes for ever. `Walk` checks that no role is held by two members by their `is_held`, however late
their keepalives are answered. After each walk all faults stop, and the group must settle with every
role held by its owner.

When a walk fails, the error ends with `walks.draw(SEED, STEPS)`. `walks.shrink` of it gives the few
steps that fail.
"""

import pytest
import walks

from rink.core import effects as do

# Each item is (first seed, number of seeds, steps of a walk). With several items, the processes
# share the walks.
FEW = [*((first, 10, 250) for first in range(0, 50, 10)), (5000, 5, 800), (5005, 5, 800)]
MANY = [*((first, 50, 250) for first in range(50, 300, 50))]
MANY += [(first, 10, 800) for first in (5010, 5020, 5030)]


@pytest.mark.parametrize(
    ("first", "count", "length"),
    [*FEW, *(pytest.param(*one, marks=pytest.mark.deep) for one in MANY)],
)
def test_no_walk_finds_an_overlap_and_every_group_settles(first, count, length):
    for seed in range(first, first + count):
        try:
            walks.walk(walks.draw(seed, length))
        except Exception as error:
            error.add_note(f"walks.draw({seed}, {length})")
            raise


def test_walks_go_where_it_hurts():
    """Check that walks grant, lose, refuse and delay, or they prove little."""
    worlds = [walks.walk(walks.draw(seed, 400)) for seed in range(40)]
    effects = [e for world in worlds for m in world.everyone for e in m.effects]
    seen = {type(effect) for effect in effects}
    assert seen >= {do.Grant, do.Lose, do.Proclaim, do.RevokeLease, do.DropLease, do.RemoveRecord}
    reports = " ".join(effect.text for effect in effects if isinstance(effect, do.Report))
    for what in ("is given up", "the member's record is gone", "failed", "waits to join"):
        assert what in reports
    assert any(len(world.tokens) == len(walks.ROLES) for world in worlds)
    assert sum(world.longest_beat > 30.0 for world in worlds) > 3  # of answers to keepalives

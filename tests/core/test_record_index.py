"""Test that carried results equal those derived anew, and are shared."""

import derived
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from rink.core.member_record import MemberRecord, Phase, Share
from rink.core.record_index import Records
from rink.core.unsettled_records import Unsettled, unsettled_in
from rink.core.values import Member, Proclaimed, RequestEntry, Version
from rink.core.view import View, gone, shares_of

PLACES = derived.Strict()
SHARES = [(), (Share(0, 1, "jump"),), (Share(1, 2, "jump"), Share(0, 1, "balanced:8"))]
OWNED = [shares_of(Version(1, ranks, "jump"), PLACES.rank) for ranks in (("a",), ("b", "a"))]

records = st.builds(
    MemberRecord,
    incarnation=st.just("i"),
    ttl=st.just(9),
    phase=st.sampled_from(Phase),
    rebalance_delay=st.sampled_from([0.0, 60.0]),
    shares=st.sampled_from(SHARES),
    draining=st.sampled_from([(), ("x",)]),
    schemes=st.sampled_from([("jump",), ("balanced:8", "jump")]),
)
members = st.builds(
    Member,
    name=st.sampled_from("abc"),
    record=st.one_of(records, st.none()),
    create_revision=st.sampled_from([1, 2, 3]),
    mod_revision=st.integers(4, 9),
    lease=st.sampled_from([0, 7, 7, 7, 8]),
    problem=st.sampled_from(["", "is odd", "is odder"]),
)
others = st.sampled_from(
    [Proclaimed(1, None, 1, 1, "?"), RequestEntry("u", None, 1), RequestEntry("u", None, 2)]
)
changes = st.one_of(members, members.map(gone), others, others.map(gone))


@given(
    st.lists(
        st.tuples(st.lists(changes, min_size=1, max_size=3), st.sampled_from(OWNED)), max_size=8
    )
)
def test_records_brought_along_equal_those_derived_anew(steps):
    view, unsettled = View.listed(1, []), Unsettled()
    for revision, (batch, owned) in enumerate(steps, start=2):
        before, view = view, view.changed(revision, batch)
        derived._check_view(view)
        assert unsettled.find(view.records, owned) == unsettled_in(view.by_age, owned)
        standing = before.records.standing
        if standing is view.records.standing:
            assert _for_ranking(before) == _for_ranking(view)


def _for_ranking(view):
    return [
        (m.name, m.create_revision, m.lease, m.record and (m.record.phase, m.record.schemes))
        for m in view.by_age
    ]


def make(name, **record):
    return Member(name, MemberRecord("i", 9, **record), ord(name), 200, 7)


def test_records_share_what_a_claim_does_not_change():
    view = View.listed(1, [make("a"), make("b")])
    after = view.changed(2, [make("a", shares=SHARES[1])])
    assert after.records.roster is view.records.roster
    assert after.records.standing is view.records.standing
    assert after.versions is view.versions
    assert (view.records.pairs, after.records.pairs) == ({}, {("jump", 1): 1})


def test_records_count_the_shares_of_a_record_anew():
    view = View.listed(1, [make("a", shares=SHARES[1]), make("b", shares=SHARES[2])])
    view = view.changed(2, [make("a", shares=SHARES[2])])
    assert view.records.pairs == {("jump", 2): 2, ("balanced:8", 1): 2}
    view = view.changed(3, [make("a"), make("b")])
    assert view.records.pairs == {}


def test_records_have_another_standing_where_ranking_reads_a_change():
    view = View.listed(1, [make("a"), make("b")])
    changed = [{"phase": Phase.LEAVING}, {"rebalance_delay": 1.0}, {"schemes": ("first",)}]
    for change in changed:
        after = view.changed(2, [make("a", **change)])
        assert after.records.roster is view.records.roster
        assert after.records.standing is not view.records.standing


def test_records_have_another_roster_where_one_is_bound_anew():
    view = View.listed(1, [make("a"), make("b")])
    for lease, created in ((8, ord("a")), (0, ord("a")), (7, 9)):
        other = evolve(make("a"), lease=lease, create_revision=created)
        after = view.changed(2, [other])
        assert after.records.roster is not view.records.roster
        assert Records.of(after.members).by_age == list(after.by_age)


def test_unsettled_records_are_derived_anew_for_another_version():
    view, unsettled = View.listed(1, [make("a", shares=SHARES[1])]), Unsettled()
    assert set(unsettled.find(view.records, OWNED[1])) == {"a"}
    assert unsettled.find(view.records, OWNED[0]) == {}
    after = view.changed(2, [make("a", shares=SHARES[1], draining=("x",))])
    assert set(unsettled.find(after.records, OWNED[0])) == {"a"}
    assert set(unsettled.find(view.records, OWNED[0])) == set()


def test_record_that_is_gone_is_unsettled_no_more():
    view, unsettled = View.listed(1, [make("a"), make("b")]), Unsettled()
    assert set(unsettled.find(view.records, OWNED[1])) == {"a", "b"}
    view = view.changed(2, [gone(make("a"))])
    assert set(unsettled.find(view.records, OWNED[1])) == {"b"}

"""Test that the codec is lossless, and that no content makes it raise."""

import json

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rink.core import codec
from rink.core.member_record import MemberRecord, Phase, Share
from rink.core.values import Clutter, Member, Proclaimed, Request, RequestEntry, Version, Wish

ROOT = b"rink/g/"
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
SHARES = st.builds(
    lambda size, rank, scheme, gained, taken: Share(rank % size, size, scheme, gained, taken),
    st.integers(1, 9),
    st.integers(0, 9),
    NAMES,
    st.frozensets(NAMES, max_size=3),
    st.frozensets(NAMES, max_size=3),
)
RECORDS = st.builds(
    MemberRecord,
    incarnation=NAMES,
    ttl=st.integers(1, 10**6),
    phase=st.sampled_from(Phase),
    rebalance_delay=st.floats(0, 1e6),
    version=st.integers(0, 10**9),
    shares=st.lists(SHARES, max_size=3).map(tuple),
    draining=st.lists(NAMES, max_size=3).map(tuple),
    schemes=st.lists(NAMES, max_size=3).map(tuple),
    address=NAMES,
    labels=st.dictionaries(NAMES, NAMES, max_size=3),
    joined=NAMES,
    leads_by=st.dictionaries(NAMES, st.none() | st.floats(0, 1e6), max_size=3),
)
VERSIONS = st.builds(
    Version,
    number=st.just(7),
    ranks=st.lists(NAMES, unique=True, max_size=4).map(tuple),
    scheme=NAMES,
    pins=st.dictionaries(NAMES, NAMES, max_size=3),
    token_base=st.integers(0, 2**63),
    because=st.lists(NAMES, max_size=3).map(tuple),
    by=NAMES,
    proclaimed=NAMES,
)


def read(path, value, lease=5):
    return codec.read(ROOT, ROOT + path.encode(), value, 1, 2, lease)


def changed(value, **fields):
    return json.dumps({**json.loads(codec.encode(value)), **fields}).encode()


RECORD = MemberRecord("i1", 60, shares=(Share(0, 2, "jump"),))
VERSION = Version(7, ("a", "b"), "jump")


@given(RECORDS)
def test_record_comes_back_as_it_was(record):
    assert read("members/a", codec.encode(record)) == Member("a", record, 1, 2, 5)


@given(VERSIONS)
def test_version_comes_back_as_it_was(version):
    value = codec.encode(version)
    assert read("versions/0000000000000007", value) == Proclaimed(7, version, 2, len(value))


@pytest.mark.parametrize(
    "request_", [Request(Wish.PIN, "r", "m"), Request(Wish.TOKEN_BASE, token_base=9)]
)
def test_request_comes_back_as_it_was(request_):
    assert read("requests/u1", codec.encode(request_)) == RequestEntry("u1", request_, 2)


def test_values_are_plain_json_with_their_format_first():
    assert codec.encode(RECORD).startswith(b'{"format":1,"incarnation":"i1","ttl":60,')
    assert b'"shares":[{"rank":0,"size":2,"scheme":"jump"}]' in codec.encode(RECORD)


def test_value_that_json_cannot_carry_is_refused_before_it_is_written():
    with pytest.raises(ValueError, match="JSON compliant"):
        codec.encode(MemberRecord("i", 60, rebalance_delay=float("inf")))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"NaN", "is not JSON"),
        (b"[" * 200_000, "is not JSON"),
        (b"9" * 5000, "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b"{}", "has format None; this Rink reads format 1"),
        (b'{"format":2}', "has format 2"),
        (b'{"format":"1"}', "has format '1'"),
        (b'{"format":1}', "cannot be read: "),
        (changed(RECORD, ttl="60"), "$.ttl"),
        (changed(RECORD, ttl=True), "$.ttl"),
        (changed(RECORD, ttl=0), "has a ttl of 0 s"),
        (changed(RECORD, ttl=10**400), "has a ttl of 1000"),
        (changed(RECORD, phase="dancing"), "$.phase"),
        (changed(RECORD, draining="abc"), "$.draining"),
        (changed(RECORD, draining=[1]), "$.draining"),
        (changed(RECORD, draining=["\ud800"]), "$.draining"),
        (changed(RECORD, shares=[{"rank": 2, "size": 2, "scheme": "jump"}]), "$.shares[0]"),
        (changed(RECORD, shares=[{"rank": 0, "size": 2**31, "scheme": "jump"}]), "$.shares[0]"),
        (changed(RECORD, shares={"rank": 0}), "cannot be read"),
        (changed(RECORD, rebalance_delay="x").replace(b'"x"', b"1e999"), "$.rebalance_delay"),
        (changed(RECORD, rebalance_delay=10**400), "cannot be read"),
    ],
)
def test_record_that_cannot_be_read_is_an_entry_that_says_so(value, problem):
    entry = read("members/a", value)
    assert isinstance(entry, Member)
    assert entry.record is None
    assert problem in entry.problem
    assert not entry.can_coordinate


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (changed(VERSION, number=8), "is version 8 by its content"),
        (changed(VERSION, ranks=["a", "a"]), "ranks one member twice"),
        (changed(VERSION, format=2), "has format 2"),
        (changed(VERSION, pins={"r": 1}), "$.pins"),
    ],
)
def test_version_that_cannot_be_read_is_an_entry_that_says_so(value, problem):
    entry = read("versions/0000000000000007", value)
    assert (entry.number, entry.version) == (7, None)
    assert problem in entry.problem


def test_field_of_a_later_rink_is_passed_over():
    assert read("members/a", changed(RECORD, colour="red")).record == RECORD


@pytest.mark.parametrize(
    ("odd", "kept"),
    [
        (
            {"leads_by": {"stagger": None, "initial_delay": 2, "spread": "zone"}},
            {"stagger", "initial_delay"},
        ),
        (
            {"leads_by": {"stagger": True, "more": [1], "x": {"y": 1}, "leave_delay": 1.5}},
            {"leave_delay"},
        ),
        ({"leads_by": {"stagger": 10**400, "\ud800": 1.0}}, set()),
        ({"leads_by": ["stagger"]}, set()),
        ({"leads_by": None}, set()),
        ({"labels": {"zone": "eu", "cores": 8, "odd": "\ud800", "\ud800": "x"}}, {"zone"}),
        ({"labels": ["a"]}, set()),
        ({"labels": "a"}, set()),
    ],
)
def test_what_is_only_for_people_never_makes_a_record_unreadable(odd, kept):
    """Keep a new kind of setting from stopping the grants of older members."""
    [field] = odd
    record = read("members/a", changed(RECORD, **odd)).record
    assert getattr(record, field) == {name: odd[field][name] for name in kept}
    assert attrs.evolve(record, **{field: {}}) == RECORD


def test_setting_that_is_not_finite_is_passed_over():
    value = changed(RECORD, leads_by={"leave_delay": 7}).replace(b": 7", b": 1e999")
    assert read("members/a", value).record == RECORD


@pytest.mark.parametrize(
    "path",
    [
        "",
        "members/",
        "members",
        "members/a/b",
        "members/%2f",
        "versions/7",
        "versions/0000000000000000",
        "versions/00000000000000007",
        "versions/" + "\uff10" * 15 + "\uff17",
        "requests/",
        "locks/a",
    ],
)
def test_key_that_no_rink_writes_is_clutter(path):
    assert isinstance(read(path, b"x"), Clutter)


def test_key_that_is_not_text_is_clutter():
    assert codec.read(ROOT, ROOT + b"\xff", b"", 1, 2, 0).key == repr(ROOT + b"\xff")


@given(st.binary(max_size=60), st.sampled_from(["members/a", "versions/0000000000000007", "x"]))
def test_no_bytes_make_it_raise(value, path):
    read(path, value)


def test_record_without_a_lease_is_nobodys():
    assert not read("members/a", codec.encode(RECORD), lease=0).can_coordinate


def test_codec_skipped_versions_lie_in_no_version():
    """They are what one iterator has not told; etcd knows nothing of them."""
    version = Version(7, ("a",), "jump", skipped=range(3, 7))
    written = codec.encode(version)
    assert b"skipped" not in written
    path = b"rink/g/versions/0000000000000007"
    for value in (written, written.replace(b'"number"', b'"skipped":5,"number"')):
        entry = codec.read(ROOT, path, value, 1, 1, 0)
        assert (entry.version, list(entry.version.skipped)) == (version, [])

"""Test that the pages are true.

Their examples run, their links lead somewhere, and no name is missing.
"""

import contextlib
import inspect
import itertools
import json
import re
import sqlite3
import tomllib

import pytest
from docs_support import (
    ALL_PAGES,
    PAGES,
    README,
    ROOT,
    all_blocks,
    anchors,
    blocks,
    code_words,
    links,
    rows,
    run,
    scripts,
)

import rink
import rink.aio
import rink.testing
from rink import partitions
from rink.core import codec
from rink.core.keys import OffsetKeys
from rink.core.member_record import MemberRecord
from rink.core.values import Request, Version
from rink.inspect.member_status import MemberStatus, Status
from rink.inspect.standby import Standby
from rink.partitions import stored
from rink.testing import plugin

API = ROOT / "docs" / "api.md"
CONCEPTS = ROOT / "docs" / "concepts.md"
ETCD_KEYS = ROOT / "docs" / "etcd-keys.md"
SETTINGS = ROOT / "docs" / "settings.md"
TESTING = ROOT / "docs" / "testing.md"
PARTITIONS = ROOT / "docs" / "partitions.md"
STREAMS = ROOT / "docs" / "streams.md"
INDEX = ROOT / "docs" / "README.md"
GUARDS = ROOT / "docs" / "guards.md"

MAX_README_WORDS = 900

PYTHON = all_blocks("python")
RUNNABLE = [block for block in PYTHON if block.setup is not None and not block.needs]


def at(block):
    return block.where


# ── examples ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("block", PYTHON, ids=at)
def test_example_compiles(block):
    block.compiled()


@pytest.mark.timeout(30)
@pytest.mark.parametrize("block", RUNNABLE, ids=at)
def test_example_runs_on_an_etcd_in_memory(block, request, monkeypatch, rink_etcd):
    class Client:
        """Imitate the real client's type, which the session checks."""

        def __new__(cls, *_, **__):
            return rink_etcd.client()

    monkeypatch.setattr("rink.session.Client", Client)
    run(block, request)


def test_most_examples_are_run():
    of_docs = [block for block in PYTHON if block.page != README]
    marked = [block for block in of_docs if block.setup is not None]
    assert len(marked) > 0.8 * len(of_docs)


def test_readme_hides_no_setup():
    assert "<!--" not in README.read_text(encoding="utf-8")


def test_readme_names_a_file_for_each_block():
    assert list(scripts(README)) == ["leader.py", "share.py", "shop.py"]
    assert list(scripts(README).values()) == [block.code for block in blocks(README, "python")]


def test_every_block_to_save_has_a_file_name():
    for page in PAGES:
        to_save = [block.code for block in blocks(page, "python") if block.needs == "saved"]
        assert [code for code in to_save if code not in scripts(page).values()] == []


def test_pages_that_save_one_file_name_show_one_file():
    """A reader who follows two pages must not overwrite a file by another one."""
    assert scripts(STREAMS)["shop.py"] == scripts(README)["shop.py"]


def test_readme_is_short():
    assert len(README.read_text(encoding="utf-8").split()) <= MAX_README_WORDS


def test_sql_fence_refuses_an_older_token():
    """Run the statement of the page on guards on SQLite."""
    (block,) = blocks(GUARDS, "sql")
    create, write = [part for part in block.code.split(";") if part.strip()][:2]
    with contextlib.closing(sqlite3.connect(":memory:")) as store:
        store.execute(create)

        def write_with(token):
            values = {"job": "job-17", "token": token, "total": token * 10}
            return store.execute(write, values).rowcount

        assert [write_with(token) for token in (5, 5, 9, 5, 9)] == [1, 1, 1, 0, 1]
        assert store.execute("SELECT job, token, total FROM totals").fetchall() == [
            ("job-17", 9, 90)
        ]


# ── links ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    broken = []
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue  # another site
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_index_names_every_page():
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {INDEX.name}
    assert pages - {link.partition("#")[0] for link in links(INDEX)} == set()


# ── names ────────────────────────────────────────────────────────────────────────────────────


def public(kind):
    """Return the public attributes of a class.

    Of an attrs class they include its fields.
    """
    fields = getattr(kind, "__attrs_attrs__", ())
    return {name for name in dir(kind) if not name.startswith("_")} | {f.name for f in fields}


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("rink", set(rink.__all__)),
        ("Session", public(rink.Session)),
        ("Rink", public(rink.Rink)),
        ("Role", public(rink.Role)),
        ("RoleSet", public(rink.RoleSet)),
        ("Change", public(rink.Change)),
        ("Status", public(Status)),
        ("MemberStatus", public(MemberStatus)),
        ("Version", public(Version)),
        ("Record", public(MemberRecord)),
        ("Request", public(Request)),
    ],
)
def test_every_public_name_is_explained(what, names):
    assert sorted(names - code_words(README, API, CONCEPTS, ETCD_KEYS)) == []


@pytest.mark.parametrize(
    "kind", [*(getattr(partitions, name) for name in partitions.__all__), stored.Stored, Standby]
)
def test_every_public_name_of_partitions_is_explained(kind):
    names = public(kind) | ({kind.__name__} & set(partitions.__all__))
    assert sorted(names - code_words(PARTITIONS)) == []


def test_every_helper_for_tests_is_explained():
    fixtures = {name for name in vars(plugin) if name.startswith("rink_")}
    names = set(rink.testing.__all__) | fixtures
    for kind in ("EtcdNode", "EtcdCluster", "RedisNode", "RedisCluster", "RedisPair"):
        names |= public(getattr(rink.testing, kind))
    assert sorted(names - code_words(TESTING)) == []


@pytest.mark.parametrize(
    ("kind", "heading"), [(rink.Session, "Of a session"), (rink.Rink, "Of a member")]
)
def test_every_setting_has_a_row_with_its_default(kind, heading):
    table = rows(SETTINGS, heading)
    asked = inspect.signature(kind).parameters.values()
    missing = {setting.name for setting in asked} - table.keys()
    assert missing == set()
    given = {
        setting.name: table[setting.name][0]
        for setting in asked
        if setting.kind is inspect.Parameter.KEYWORD_ONLY and setting.name != "clock"
    }
    true = {
        setting.name: f"`{json.dumps(setting.default).replace('null', 'None')}`"
        for setting in asked
        if setting.name in given
    }
    assert given == true


def test_both_faces_take_the_same_settings():
    for name in ("Session", "Rink"):
        blocking, aio = getattr(rink, name), getattr(rink.aio, name)
        assert inspect.signature(blocking) == inspect.signature(aio)


# ── what lies in etcd ────────────────────────────────────────────────────────────────────────


def shown_keys():
    """Return each key that `etcd-keys.md` shows, with the value below it."""
    for block in blocks(ETCD_KEYS, "text"):
        lines = block.code.splitlines()
        for key, value in itertools.pairwise(lines):
            if re.fullmatch(r"rink/\S+/(members|versions|requests)/\S+", key):
                yield key, value


def test_what_is_shown_of_etcd_is_what_would_be_written_today():
    kinds = set()
    for key, value in shown_keys():
        root = key[: re.search("members/|versions/|requests/", key).start()].encode()
        entry = codec.read(root, key.encode(), value.encode(), 1, 1, 1)
        assert getattr(entry, "problem", "") == "", key
        content = next(
            getattr(entry, part)
            for part in ("record", "version", "request")
            if hasattr(entry, part)
        )
        assert codec.encode(content).decode() == value, key
        kinds.add(type(content))
    assert kinds == {MemberRecord, Version, Request}


def test_what_is_shown_of_a_partition_is_what_would_be_written_today():
    (block,) = blocks(PARTITIONS, "text")
    _, key, value = block.code.splitlines()
    assert key.encode() == OffsetKeys.of("rink/", "billing", "orders").partition(0)
    found = stored.read(key.encode(), value.encode())
    assert stored.encode(found).decode() == value


def test_no_page_is_empty():
    assert all(page.read_text(encoding="utf-8").count("\n") > 20 for page in PAGES)


def test_changelog_tells_of_the_version_that_is_being_made():
    with (ROOT / "pyproject.toml").open("rb") as file:
        version = tomllib.load(file)["project"]["version"]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+?),? ", changes, re.MULTILINE)[0] == version

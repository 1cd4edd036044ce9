from __future__ import annotations

from cli_support import JOINED

from rink.core.keys import Keys


def test_history_shows_when_by_whom_why_and_which_ranks_changed(town, run):
    town.version(1, "a", because=("started", "joined a"))
    town.version(2, "a", "b", because=("joined b",), by="a")
    town.version(3, "c", "b", because=("replaced a by c: leaving",), by="b")
    result = run("history", "orders")
    assert result.exit_code == 0
    assert [" ".join(line.split()) for line in result.stdout.splitlines()[2:]] == [
        "1 2026-07-01 10:11:12Z a started rank 0: - → a",
        "joined a",
        "2 2026-07-01 10:11:12Z a joined b rank 1: - → b",
        "3 2026-07-01 10:11:12Z b replaced a by c: leaving rank 0: a → c",
    ]


def test_history_as_json(town, run_json):
    town.version(1, "a")
    town.version(2, "b", pins={"x": "b"}, token_base=5, because=("pinned x to b",))
    first, second = run_json("history", "orders")["versions"]
    assert first["changed"] == {
        "ranks": [{"rank": 0, "before": None, "after": "a"}],
        "pins": [],
        "size_before": 0,
        "size_after": 1,
    }
    assert second == {
        "number": 2,
        "proclaimed": JOINED,
        "by": "a",
        "because": ["pinned x to b"],
        "ranks": ["b"],
        "scheme": "jump",
        "pins": {"x": "b"},
        "token_base": 5,
        "changed": {
            "ranks": [{"rank": 0, "before": "a", "after": "b"}],
            "pins": [{"role": "x", "before": None, "after": "b"}],
            "size_before": 1,
            "size_after": 1,
        },
        "problem": "",
    }


def test_last_takes_the_newest_and_still_compares_with_the_one_before(town, run_json):
    for number in range(1, 25):
        town.version(number, f"m{number}")
    assert [v["number"] for v in run_json("history", "orders")["versions"]] == [*range(5, 25)]
    (one,) = run_json("history", "orders", "--last", "1")["versions"]
    assert one["changed"]["ranks"] == [{"rank": 0, "before": "m23", "after": "m24"}]


def test_version_after_a_pruned_or_unreadable_one_has_no_changes(town, run, run_json):
    town.version(7, "a")
    town.write(Keys.of("rink/", "orders").version(8), b"?")
    town.version(9, "b")
    versions = run_json("history", "orders")["versions"]
    assert [version["changed"] for version in versions] == [None, None, None]
    assert versions[1]["problem"] == "is not JSON"
    text = run("history", "orders").stdout
    assert "the version before is not kept" in text
    assert "is not JSON" in text


def test_many_changes_are_counted_and_no_change_is_said(town, run):
    town.version(1, *(f"m{rank}" for rank in range(30)))
    town.version(2, *(f"m{rank}" for rank in range(30)), token_base=1)
    text = run("history", "orders").stdout
    assert "rank 7: - → m7" in text
    assert "rank 8:" not in text
    assert "… and 22 more" in text
    assert "no rank" in text


def test_group_without_a_version_yet(town, run, run_json):
    town.record("a")
    assert run("history", "orders").stdout == "group 'orders' has no version yet\n"
    assert run_json("history", "orders")["versions"] == []

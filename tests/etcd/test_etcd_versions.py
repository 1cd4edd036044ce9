"""Check the warnings of etcd's known faults, by version."""

from pathlib import Path

import pytest

from rink.etcd import server_versions
from rink.etcd.server_versions import advice

PAGE = Path(__file__).parents[2] / server_versions.PAGE.partition("#")[0]


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("3.4.23", ["etcd 3.4.23 ", "former leader", "compaction", "renewed", "to 3.4.38 "]),
        (
            "3.5.0",
            [
                "alone may lose",
                "different data",
                "former leader",
                "compaction",
                "renewed",
                "to 3.5.23 ",
            ],
        ),
        ("3.5.12", ["former leader", "compaction", "renewed", "to 3.5.23 "]),
        ("3.5.13", ["compaction", "renewed"]),
        ("3.5.22", ["renewed"]),
        ("3.6.0-rc.1", ["renewed", "to 3.6.5 "]),
        ("3.6.4", ["renewed", "fencing token"]),
        ("3.5.1", ["two members may hold one role", "different data (fixed in 3.5.6)"]),
        ("3.5.1", ["docs/failure-modes.md#releases-of-etcd"]),
        ("3.3.25", ["too old", "3.5"]),
        ("2.3.8", ["too old"]),
    ],
)
def test_advice_on_an_old_version_names_faults_and_the_fixed_version(version, says):
    told = advice(version)
    assert all(words in told for words in says)


def test_advice_does_not_name_a_fault_that_is_fixed():
    assert "alone may lose" not in advice("3.5.5")
    assert "different data" not in advice("3.5.6")
    assert "former leader" not in advice("3.5.13")
    assert "compaction" not in advice("3.5.18")


@pytest.mark.parametrize("version", ["3.4.38", "3.5.23", "3.6.5", "3.7.0", "4.0.0", "", "unknown"])
def test_nothing_is_told_of_a_version_without_known_faults(version):
    assert advice(version) is None


@pytest.mark.parametrize(
    ("version", "fixed"),
    [("3.5.1", "3.5.23"), ("3.4.1", "3.4.38"), ("3.3.1", "3.5"), ("3.7.0", "")],
)
def test_fixed_in_names_the_first_release_without_known_faults(version, fixed):
    assert server_versions.fixed_in(version) == fixed


def test_page_lists_each_fault_and_the_release_that_fixes_it():
    text = PAGE.read_text()
    assert "## Releases of etcd\n" in text
    for (major, minor), faults in server_versions.FIXED.items():
        for patch, fault in faults:
            (row,) = [line for line in text.splitlines() if line.startswith(f"| {fault} |")]
            assert f"{major}.{minor}.{patch}" in row

"""Import the core tests' etcd, and print the size of each world."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "core"))


def pytest_terminal_summary(terminalreporter):
    # pytest-xdist sends the properties of each report to the controller, which prints this table.
    reports = [one for kind in ("passed", "failed") for one in terminalreporter.getreports(kind)]
    worlds = [
        value
        for report in reports
        if report.when == "call"
        for name, value in report.user_properties
        if name == "world"
    ]
    if not worlds:
        return
    terminalreporter.section("small worlds")
    for name, states, moves, seconds in sorted(worlds):
        terminalreporter.write_line(
            f"{name:40} {states:9,} states {moves:10,} moves {seconds:6.1f} s"
        )
    states, seconds = sum(one[1] for one in worlds), sum(one[3] for one in worlds)
    terminalreporter.write_line(f"{'together':40} {states:9,} states {seconds:25.1f} s")

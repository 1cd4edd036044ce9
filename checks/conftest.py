"""Make the mutants and the readers of pages importable for the checks."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / "core"), str(TESTS / "docs")]

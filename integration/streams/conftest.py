"""Find the contract that a Redis in memory passes as well."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "streams"))

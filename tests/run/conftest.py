"""Import helpers that tests of `rink run` share with other tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "streams"))  # the event loop whose time jumps

"""Makes the examples' modules importable, as they are when an example runs as a script."""

import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES), str(EXAMPLES / "kubernetes")]

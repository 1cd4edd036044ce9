"""Make `docs_support` importable from any working folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

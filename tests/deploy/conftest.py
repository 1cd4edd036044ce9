"""Make the helpers of this folder importable, whichever folder the tests are run from."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

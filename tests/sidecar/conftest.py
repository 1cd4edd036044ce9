"""A sidecar without sockets: its application is called in this process, and its member is a stand-in."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "streams"))  # the event loop whose time jumps

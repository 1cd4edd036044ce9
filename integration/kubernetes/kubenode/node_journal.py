"""Note what the node does to containers, as lines of JSON.

Times are of CLOCK_BOOTTIME.
"""

from __future__ import annotations

import json
import time
from pathlib import Path


class Journal:
    """Write the events of a node to a file.

    The events are `started`, `ended`, `hook`, `hook ended`, `SIGTERM`, `SIGKILL` and `removed`. An
    end is noted after the process has been waited for, so it was dead by then.

    Args:
        path: the file; lines are appended and flushed.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def note(self, what: str, pod: str, container: str = "", **more: object) -> None:
        """Note an event of a pod or of one of its containers."""
        at = time.clock_gettime(time.CLOCK_BOOTTIME)
        event = {"what": what, "pod": pod, "container": container, "at": at, **more}
        self._file.write(json.dumps(event) + "\n")

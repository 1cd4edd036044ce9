"""Take a snapshot of etcd into the volume of a member, in place of the member's data.

    python restore.py wait              move the old data aside, and wait for the snapshot
    python restore.py take < FILE       store the snapshot; run it by `kubectl exec --stdin`

The volume is mounted at VOLUME. The next container of the pod restores the snapshot.
"""

import os
import shutil
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

LOOK_INTERVAL_S = 0.5

EXEC_END_S = 2.0
"""Time for the `kubectl exec` that stored the snapshot to end before its container does."""


def wait(volume: Path) -> None:
    """Move the data of the member aside, and wait until there is a new snapshot."""
    for name in ("snapshot.db", "incoming.db"):  # of an earlier restore
        (volume / name).unlink(missing_ok=True)
    if (volume / "data").exists():
        aside = volume / f"data-until-{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}"
        (volume / "data").rename(aside)
        print("moved the old data to", aside, flush=True)
    (volume / "incoming.db").touch()  # from now on `take` may write
    print("waiting for a snapshot", flush=True)
    while not (volume / "snapshot.db").exists():
        time.sleep(LOOK_INTERVAL_S)
    time.sleep(EXEC_END_S)


def take(volume: Path) -> None:
    """Store the snapshot that is read from stdin. It gets its name when all of it is there."""
    incoming = volume / "incoming.db"
    if not incoming.exists():
        raise SystemExit("this member does not wait for a snapshot yet: try again")
    with incoming.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    if not incoming.stat().st_size:
        raise SystemExit("no snapshot: stdin is empty. Run kubectl exec with --stdin, and < FILE")
    incoming.rename(volume / "snapshot.db")


if __name__ == "__main__":
    {"wait": wait, "take": take}[sys.argv[1]](Path(os.environ["VOLUME"]))

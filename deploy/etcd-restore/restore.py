"""Store a snapshot of etcd in a member's volume, in place of its data.

    python restore.py wait              wait for the snapshot, and move the old data aside
    python restore.py take < FILE       store the snapshot; run it by `kubectl exec --stdin`

The volume is mounted at VOLUME. The next container of the pod restores the snapshot.
"""

import hashlib
import os
import shutil
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

LOOK_INTERVAL_S = 0.5

EXEC_END_S = 2.0
"""Time for the `kubectl exec` of `take` to end before its container does."""

CHECKSUM_BYTES = hashlib.sha256().digest_size
BLOCK_BYTES = 1 << 20


def wait(volume: Path) -> None:
    """Wait for a new snapshot, and move the member's data aside.

    The data stays in place until the snapshot has come: a restore that is given up changes nothing.
    """
    for name in ("snapshot.db", "incoming.db"):  # of an earlier restore
        (volume / name).unlink(missing_ok=True)
    (volume / "incoming.db").touch()  # from now on `take` may write
    print("waiting for a snapshot", flush=True)
    while not (volume / "snapshot.db").exists():
        time.sleep(LOOK_INTERVAL_S)
    if (volume / "data").exists():
        aside = volume / f"data-until-{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}"
        (volume / "data").rename(aside)
        print("moved the old data to", aside, flush=True)
    time.sleep(EXEC_END_S)


def take(volume: Path) -> None:
    """Store the snapshot from stdin, under its name once all of it is there."""
    incoming = volume / "incoming.db"
    if not incoming.exists():
        raise SystemExit("this member does not wait for a snapshot now: try again")
    with incoming.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    if not incoming.stat().st_size:
        raise SystemExit("no snapshot: stdin is empty. Run kubectl exec with --stdin, and < FILE")
    if not is_whole(incoming):
        raise SystemExit("the snapshot is not whole: try again, or copy the backup again")
    incoming.rename(volume / "snapshot.db")


def is_whole(snapshot: Path) -> bool:
    """Return whether a snapshot ends with the checksum of its data."""
    left = max(0, snapshot.stat().st_size - CHECKSUM_BYTES)
    checksum = hashlib.sha256()
    with snapshot.open("rb") as file:
        while block := file.read(min(left, BLOCK_BYTES)):
            checksum.update(block)
            left -= len(block)
        return file.read() == checksum.digest()


if __name__ == "__main__":
    {"wait": wait, "take": take}[sys.argv[1]](Path(os.environ["VOLUME"]))

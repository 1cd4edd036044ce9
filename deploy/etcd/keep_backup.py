"""Keep the snapshot that was just checked, and delete the oldest ones.

The environment names the folder (BACKUPS) and how many snapshots to keep (KEEP).
"""

import os
from datetime import UTC, datetime
from pathlib import Path


def main() -> None:
    """Name the new snapshot after the time, then keep only the newest ones."""
    folder, keep = Path(os.environ["BACKUPS"]), int(os.environ["KEEP"])
    if keep < 1:
        raise SystemExit(f"KEEP={keep} would delete every backup; give at least 1")
    name = f"etcd-{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}.db"
    (folder / "incoming.db").rename(folder / name)
    print("kept", name)
    for old in sorted(folder.glob("etcd-*.db"))[:-keep]:
        old.unlink()
        print("deleted", old.name)


if __name__ == "__main__":
    main()

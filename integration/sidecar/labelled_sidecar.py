"""Run `rink` with another folder of the service account.

labelled_sidecar.py FOLDER sidecar --group orders …
"""

from __future__ import annotations

import sys
from pathlib import Path

from rink.cli import main
from rink.sidecar import pod_api

if __name__ == "__main__":
    pod_api.FOLDER = Path(sys.argv.pop(1))
    main()

"""Run `rink` with another folder of the service account.

labelled_sidecar.py FOLDER sidecar --group orders …

The environment variable `CALL_LIMIT_S` gives the calls another time limit.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rink.cli import main
from rink.sidecar import pod_api, pod_label

if __name__ == "__main__":
    pod_api.FOLDER = Path(sys.argv.pop(1))
    limit_s = float(os.environ.get("CALL_LIMIT_S", pod_api.TIMEOUT_S))
    pod_api.TIMEOUT_S, pod_api.CONNECT_TIMEOUT_S = limit_s, 0.75 * limit_s
    pod_label.TIMEOUT_MS, pod_label.UNSURE_MS = round(1000 * limit_s), round(2000 * limit_s)
    main()

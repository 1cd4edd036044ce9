"""Run a node of `kubenode` as a process.

The command is `python kube_node.py SETTINGS`, see `Settings.as_json`.
"""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from kubenode.agent import main  # noqa: E402 - needs the path above

main(sys.argv[1])

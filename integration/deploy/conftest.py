"""Make the helpers of other folders importable.

These are the network of namespaces, the reader of lines and that of manifests.
"""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHARED = ("integration/deploy", "integration/faults", "integration/cli", "tests/deploy")
sys.path[:0] = [str(ROOT / folder) for folder in SHARED]
pytest.register_assert_rewrite("etcd_pods")

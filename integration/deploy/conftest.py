"""Make the network of namespaces and the reader of manifests importable."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "integration" / "faults"), str(ROOT / "tests" / "deploy")]
pytest.register_assert_rewrite("etcd_pods")

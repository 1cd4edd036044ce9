"""Share one control plane among all tests here.

Where none can be built, they are skipped with a sentence.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from kube_build import NoControlPlaneError
from kube_cluster import running_cluster

ROOT = Path(__file__).parents[2]
# Behind everything else: the renderer of kustomizations, the example of the flights, and sidecars.
FOLDERS = ("tests/deploy", "examples", "examples/kubernetes", "integration/sidecar")
sys.path += [str(ROOT / name) for name in FOLDERS]
pytest.register_assert_rewrite("sidecar_support")


@pytest.fixture(scope="session")
def kube():
    """Return the control plane, until the run ends."""
    try:
        opened = running_cluster()
        cluster = opened.__enter__()
    except NoControlPlaneError as error:
        pytest.skip(str(error))
    try:
        yield cluster
    finally:
        opened.__exit__(None, None, None)

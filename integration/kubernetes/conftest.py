"""One control plane for all tests here. Where none can be built, they are skipped with a sentence."""

from __future__ import annotations

import pytest
from kube_build import NoControlPlaneError
from kube_cluster import running_cluster


@pytest.fixture(scope="session")
def kube():
    """The control plane, until the run ends."""
    try:
        opened = running_cluster()
        cluster = opened.__enter__()
    except NoControlPlaneError as error:
        pytest.skip(str(error))
    try:
        yield cluster
    finally:
        opened.__exit__(None, None, None)

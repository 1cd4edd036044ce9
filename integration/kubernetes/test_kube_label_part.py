"""Test that the label moves with the role, on a real apiserver."""

import pytest
from label_part import carry_out

# The first one may have to build the control plane.
pytestmark = [pytest.mark.deep, pytest.mark.timeout(1800)]


def test_label_moves_with_the_role_between_pods(kube):
    assert list(carry_out(kube).misses) == []

"""Test that networks of several processes have different subnets."""

from contextlib import closing

import network
import pytest
from network import Subnet

pytestmark = pytest.mark.waits


def test_subnet_is_one_networks_own_until_it_is_closed(monkeypatch):
    """Both see the same routes, as two processes do that start at once."""
    monkeypatch.setattr(network, "_subnets_without_route", lambda: [250, 251])
    with closing(Subnet()) as first:
        with closing(Subnet()) as second:
            assert (first.number, second.number) == (250, 251)
            with pytest.raises(RuntimeError, match="are taken"):
                Subnet()
        with closing(Subnet()) as third:
            assert third.number == 251

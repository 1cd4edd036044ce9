"""Test the handover of a real HTTP server between two hosts.

Each host is a network namespace. `figures.py` hands the server over 100 times, alone on the machine
and with the fixed limit.
"""

from __future__ import annotations

import contextlib
import statistics

import pytest
from handing_over import hand_over, slowness, time_start
from network import Network, refusal

pytestmark = pytest.mark.waits

HANDOVERS = 10
GAP_S = 0.3
"""The program ends at once at SIGTERM, so its own stop adds nothing."""


def test_http_server_is_handed_over_within_300_ms(runs, wire_to, etcd_node):
    """The limit stretches with the load of the machine.

    Beside other tests, all parts of a handover take longer, too.
    """
    if why := refusal():
        pytest.skip(why)
    starts = []
    with contextlib.closing(Network()) as network:
        wire = wire_to(etcd_node, network.here)

        def start(host, line):
            return runs(*line, endpoint=wire.endpoint, before=host.command)

        seen = hand_over(network, start, HANDOVERS, lambda: starts.append(time_start()))
    assert seen.tokens == sorted(seen.tokens)
    assert len(seen.gaps) == HANDOVERS
    limit = GAP_S * slowness(starts)
    median, longest = statistics.median(seen.gaps), max(seen.gaps)
    print(f"limit {limit:.3f} s; gaps: median {median:.3f} s, max {longest:.3f} s")
    assert sorted(seen.gaps)[-2] < limit  # one of 10 may be the machine's

"""Leave in order when Kubernetes ends the pod.

A rollout may end old pods before new pods have started, so in Kubernetes a leave waits for a
successor. All waits of a leave must fit into the pod's `terminationGracePeriodSeconds`. After that
time, the processes are killed, and each role stays unheld until the lease ends. A pod cannot read
this setting, so an option of the command repeats it.
"""

from __future__ import annotations

import logging
import os

HANDOVER_WAIT_S = 20.0
"""The default wait of a leave for a successor in Kubernetes."""

DEFAULT_GRACE_S = 30
"""Kubernetes' own default of `terminationGracePeriodSeconds`."""

MARGIN_S = 5.0
"""Seconds of the grace that are left for the end of the process itself."""

log = logging.getLogger("rink")


def is_in_kubernetes() -> bool:
    """Return whether this process runs in a pod."""
    return "KUBERNETES_SERVICE_HOST" in os.environ


def default_handover_wait() -> float:
    """Return the default wait of a leave for a successor, in seconds."""
    return HANDOVER_WAIT_S if is_in_kubernetes() else 0.0


def check_grace(leaves_within_s: float, grace_s: float | None) -> None:
    """Warn if the pod may be killed before a leave is over.

    `leaves_within_s` is the sum of all waits of a leave. `grace_s` is the pod's
    `terminationGracePeriodSeconds`, or None if it was not given.
    """
    needed_s = leaves_within_s + MARGIN_S
    if grace_s is None and is_in_kubernetes():
        text = (
            "leaving takes up to %.0f s: set terminationGracePeriodSeconds to %.0f or more "
            "(Kubernetes' default is %d), and --termination-grace to the same"
        )
        log.warning(text, leaves_within_s, needed_s, DEFAULT_GRACE_S)
    elif grace_s is not None and grace_s < needed_s:
        text = (
            "leaving takes up to %.0f s, but the pod is killed after %.0f s: set "
            "terminationGracePeriodSeconds to %.0f or more, or make --handover-wait shorter"
        )
        log.warning(text, leaves_within_s, grace_s, needed_s)

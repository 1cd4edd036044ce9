"""Say which program runs in the pods of a row, and with which options."""

from __future__ import annotations

import sys
from pathlib import Path

from kube_cluster import Cluster
from scenarios import Scenario

from rink.testing import EtcdNode

HERE = Path(__file__).parent
INITIAL_DELAY_S = 2.0
LEAVE_TIMEOUT_S = 10.0
AWAIT = 'touch ready; exec "$@"'
SERVE = 'RINK_ROLE=leader RINK_TOKEN=$(date +%s%3N) exec "$@"'
"""A Lease has no token, so the time stands for it."""


def command(scenario: Scenario, cluster: Cluster, etcd: EtcdNode, events: Path) -> list[str]:
    """Return the command of a row's container.

    Args:
        scenario: the row.
        cluster: where it runs.
        etcd: of the members.
        events: the folder of the files of events.
    """
    match scenario.runs:
        case "rink":
            return [sys.executable, str(HERE / "rollout_member.py"), *rink(scenario, etcd, events)]
        case "redistribution":
            options = shared(scenario, etcd, events)
            return [sys.executable, str(HERE / "redistributing_member.py"), *options]
        case "client-go":
            config = str(cluster.folder / "kubeconfig")
            file = f"{events}/$(POD_NAME).jsonl"
            return [str(cluster.binaries.elector), config, scenario.name, "$(POD_NAME)", file]
        case "await-election":
            config = str(cluster.folder / "kubeconfig")
            awaiter = [str(cluster.binaries.awaiter), config, scenario.name, "$(POD_NAME)"]
            server = [sys.executable, str(HERE / "http_server.py"), "0"]
            return ["sh", "-c", AWAIT, "sh", *awaiter, "sh", "-c", SERVE, "sh", *server]
    raise AssertionError(scenario.runs)


def shared(scenario: Scenario, etcd: EtcdNode, events: Path) -> list[str]:
    """Return the options of each program that uses etcd."""
    values = {
        "etcd": etcd.endpoint,
        "prefix": f"{scenario.name}/",
        "events": events,
        "roles": ",".join(scenario.roles),
        "ttl": scenario.ttl,
    }
    return [f"--{key}={value}" for key, value in values.items()]


def rink(scenario: Scenario, etcd: EtcdNode, events: Path) -> list[str]:
    """Return the options of a member of Rink."""
    values = {
        "rebalance-delay": scenario.rebalance_delay,
        "initial-delay": INITIAL_DELAY_S,
        "leave-delay": scenario.leave_delay,
        "leave-timeout": LEAVE_TIMEOUT_S,
        "handover-wait": scenario.handover_wait,
        "drain": scenario.drain,
    }
    own = [f"--{key}={value}" for key, value in values.items()]
    return [*shared(scenario, etcd, events), *own, *scenario.program]

"""Do to a workload what its scenario says.

Each function returns the time from which moves count.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from kube_api import ApiError, at
from rollout_records import APP, now
from rollouts import Rollout
from scenarios import REBALANCE_DELAY_S
from sidecar_pods import GONE, SIDECAR

FROZEN_S = 10.0
LATE_MOVES = 1.5
"""Rebalance delays to wait after a rollout, so that a group that grows late is seen."""


def first_start(rollout: Rollout) -> None:
    """Wait for the first rollout, for ranks, and until the group is not new.

    A group counts as starting for one rebalance_delay: until then a newcomer gets a rank of its
    own after the initial_delay, and a rollout would find another group than most do.
    """
    rollout.wait_rolled()
    rollout.wait_settled()
    first = min(event.at for event in rollout.records.events())
    time.sleep(max(0.0, first + rollout.scenario.rebalance_delay + 1.0 - now()))


def settle(rollout: Rollout) -> None:
    """Wait for a rollout, for late moves, and then for a settled group."""
    rollout.wait_rolled()
    time.sleep(LATE_MOVES * rollout.scenario.rebalance_delay)
    rollout.wait_settled()


def roll(rollout: Rollout) -> float:
    """Roll out a new revision, once."""
    first_start(rollout)
    began = now()
    rollout.roll()
    settle(rollout)
    return began


def early_roll(rollout: Rollout) -> float:
    """Roll out a new revision 1 s after the roles were first shared.

    The group still counts as starting, so a newcomer waits only for the initial_delay. Earlier, the
    moves of the start itself would count, since the first pod has all roles until the others join.
    """
    rollout.wait_rolled()
    rollout.wait_settled()  # which is a second after the last change
    began = now()
    rollout.roll()
    settle(rollout)
    return began


def two_rolls(rollout: Rollout) -> float:
    """Roll out a second revision when the first pod of the first one is ready."""
    first_start(rollout)
    began = now()
    rollout.roll()
    rollout.wait_new_pod()
    rollout.roll()
    settle(rollout)
    return began


def crash_loop(rollout: Rollout, when: str = "before-join") -> float:
    """Roll out a revision that crashes, and roll back.

    The crash loop lasts three times the rebalance_delay.
    """
    first_start(rollout)
    began = now()
    before, held = rollout.template(), rollout.records.judge().holders
    ranks = rollout.records.ranks()
    rollout.roll(f"--crash={when}")
    time.sleep(3 * rollout.scenario.rebalance_delay)
    healthy = bystanders(ranks, {pod["metadata"]["name"] for pod in rollout.old_pods()})
    rollout.roll_back(before)
    settle(rollout)
    moves = rollout.records.judge().moves(began)
    rollout.healthy_moves = sum(moves.get(role, 0) for role, pod in held.items() if pod in healthy)
    return began


def bystanders(ranks: dict[str, int], going_on: set[str]) -> set[str]:
    """Return the pods that go on and keep their rank.

    None of their roles needs to move. If the strategy has ended a pod, the group loses its highest
    rank. The pod of the highest rank takes the ended pod's rank, so roles of these two pods move.

    Args:
        ranks: the rank of each pod before the rollout.
        going_on: the pods that the strategy has not ended.
    """
    left = len(ranks.keys() & going_on)
    return {pod for pod, rank in ranks.items() if pod in going_on and rank < left}


def crash_loop_once_joined(rollout: Rollout) -> float:
    """Do the same with a revision that crashes when it has joined."""
    return crash_loop(rollout, "after-join")


def crash_loop_late(rollout: Rollout) -> float:
    """Roll out a revision that crashes after some seconds.

    It crashes before it asks for a role.
    """
    return crash_loop(rollout, "late")


def eviction(rollout: Rollout) -> float:
    """Add a pod without a rank, and evict it under a disruption budget."""
    first_start(rollout)
    budget = {
        "metadata": {"name": APP},
        "spec": {"minAvailable": rollout.replicas, "selector": {"matchLabels": {"app": APP}}},
    }
    rollout.api.create(at("poddisruptionbudgets", rollout.namespace), budget)
    began = now()
    rollout.scale(rollout.replicas + 1)
    rollout.wait_rolled()
    (standby,) = {
        pod["metadata"]["name"] for pod in rollout.pods()
    } - rollout.records.ranks().keys()
    pods = at("pods", rollout.namespace)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": standby}}

    def is_evicted() -> bool:
        try:
            rollout.api.create(f"{pods}/{standby}/eviction", body)
        except ApiError as error:
            if error.code != 429:  # the controller of budgets has not counted the new pod yet
                raise
            return False
        return True

    rollout.wait(is_evicted, "an eviction")
    rollout.wait_rolled()
    time.sleep(LATE_MOVES * REBALANCE_DELAY_S)
    assert standby not in {pod["metadata"]["name"] for pod in rollout.pods()}
    return began


def scaling(rollout: Rollout) -> float:
    """Scale to twice as many pods, and back."""
    first_start(rollout)
    began, few = now(), rollout.replicas
    for replicas in (2 * few, few):
        rollout.scale(replicas)
        settle(rollout)
    return began


def killed_program(rollout: Rollout) -> float:
    """Kill the program of a pod not replaced yet, amid a rollout."""
    first_start(rollout)
    began = now()
    rollout.roll()
    rollout.wait_new_pod()
    os.kill(rollout.records.pid(rollout.old_pods()[-1]["metadata"]["name"]), signal.SIGKILL)
    rollout.struck = now()
    settle(rollout)
    return began


def killed_program_for_good(rollout: Rollout) -> float:
    """Kill the program of a pod; once restarted, it asks for no role."""
    first_start(rollout)
    began = now()
    pod = rollout.pods()[-1]["metadata"]["name"]
    rollout.pod_folder(pod).joinpath(GONE).touch()
    os.kill(rollout.records.pid(pod), signal.SIGKILL)
    rollout.struck = now()
    time.sleep(1.0)  # the node has noted its end
    rollout.wait(rollout.are_all_held, "a holder of each role")
    time.sleep(LATE_MOVES * rollout.scenario.rebalance_delay)
    return began


def killed_sidecar(rollout: Rollout) -> float:
    """Kill the sidecar of a pod not replaced yet, amid a rollout."""
    first_start(rollout)
    began = now()
    rollout.roll()
    rollout.wait_new_pod()
    pod = rollout.old_pods()[-1]["metadata"]["name"]
    os.kill(rollout.records.pid(pod, SIDECAR), signal.SIGKILL)
    rollout.struck = now()
    settle(rollout)
    return began


def killed_holder(rollout: Rollout) -> float:
    """Kill the program that holds the first role, with no rollout under way."""
    first_start(rollout)
    began = now()
    holder = rollout.records.judge().holders[rollout.scenario.roles[0]]
    os.kill(rollout.records.pid(holder), signal.SIGKILL)
    rollout.struck = now()
    time.sleep(1.0)  # the node has noted its end
    rollout.wait(rollout.are_all_held, "a holder of each role")
    return began


def killed_node(rollout: Rollout) -> float:
    """Kill a node with all its processes, amid a rollout.

    Start it when its roles are held again.
    """
    first_start(rollout)
    began = now()
    rollout.roll()
    rollout.wait_new_pod()
    rollout.kill_node(rollout.nodes[-1])
    rollout.wait(rollout.are_all_held, "a holder of each role")
    rollout.nodes[-1].start()
    settle(rollout)
    return began


def frozen_etcd(rollout: Rollout) -> float:
    """Freeze etcd amid a rollout."""
    first_start(rollout)
    began = now()
    rollout.roll()
    rollout.wait_new_pod()
    rollout.struck = now()
    rollout.etcd.freeze()
    time.sleep(FROZEN_S)
    rollout.etcd.thaw()
    settle(rollout)
    return began


HAPPENINGS: dict[str, Callable[[Rollout], float]] = {
    "roll": roll,
    "early roll": early_roll,
    "two rolls": two_rolls,
    "crash loop": crash_loop,
    "crash loop once joined": crash_loop_once_joined,
    "crash loop after a while": crash_loop_late,
    "eviction": eviction,
    "scaling": scaling,
    "killed program": killed_program,
    "killed program for good": killed_program_for_good,
    "killed sidecar": killed_sidecar,
    "killed holder": killed_holder,
    "killed node": killed_node,
    "frozen etcd": frozen_etcd,
}

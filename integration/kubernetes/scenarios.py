"""List the rows of the table: a deployment, an event, and the limits.

Each row is one group in a namespace of its own. It has 30 roles if the row gives no other number.
`rollouts` carries a row out, and `verdicts` judges its history.
"""

from __future__ import annotations

from typing import Any

import attrs

ROLES = 30
TTL_S = 20.0
GRACE_S = 60
REBALANCE_DELAY_S = 10.0
"""Longer than one pod takes to replace another one."""
HANDOVER_WAIT_S = 20.0


def rolling(surge: int | str, unavailable: int | str) -> dict[str, Any]:
    """Return the strategy RollingUpdate."""
    how = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {"type": "RollingUpdate", "rollingUpdate": how}


SURGE = rolling(1, 0)
SURGE_ALL = rolling("100%", 0)
DEFAULT = rolling("25%", "25%")
NO_SURGE = rolling(0, 1)
RECREATE = {"type": "Recreate"}


@attrs.frozen(kw_only=True)
class Limits:
    """Hold what a row may cost. None is no limit. Overlaps are never allowed.

    Attributes:
        mean: the exact mean of moves per role, or None.
        mean_at_most: the greatest mean.
        most: the greatest number of moves of one role.
        gap_p99: seconds that 99 of 100 gaps may last at most.
        gap: seconds that any gap may last.
        gap_beyond_start: seconds that any gap may last longer than the slowest pod's start.
        settled: seconds after a fault until each role is held.
        healthy_moves: how often roles may move away from pods that go on with their rank, in a
            crash loop.
        are_overlaps_shown: a peer's overlaps are counted, and break no limit.
    """

    mean: float | None = None
    mean_at_most: float | None = None
    most: int | None = None
    gap_p99: float | None = None
    gap: float | None = None
    gap_beyond_start: float | None = None
    settled: float | None = None
    healthy_moves: int | None = None
    are_overlaps_shown: bool = False


ONE_MOVE = Limits(mean=1.0, most=1, gap_p99=0.5)
HONEST = Limits()
FAULT = Limits(settled=TTL_S + 3.0)
STILL = Limits(most=0, gap=0.0, healthy_moves=0)
SHRUNK = Limits(most=2, gap=0.5, healthy_moves=0)
"""A pod was ended first. So roles of two pods move, and some of them move back. Others must not."""
PEER = Limits(are_overlaps_shown=True)


@attrs.frozen(kw_only=True)
class Scenario:
    """Describe one row.

    Attributes:
        name: short, without spaces.
        says: what happens, for people.
        replicas: how many pods.
        strategy: the Deployment's; None is a StatefulSet.
        happens: the name of what happens, see `happenings`.
        limits: what it may cost.
        pod_start: the least and the most seconds before a pod's program starts.
        handover_wait: the member's setting; 0 is no wait.
        rebalance_delay: the member's setting.
        leave_delay: the member's setting.
        drain: seconds that work takes to end.
        program: further options of the program in the pods.
        nodes: how many nodes share the pods.
        has_own_etcd: the row breaks its etcd, so no other row uses it.
        runs_alone: other rows would slow it down too much. A newcomer of a group that still counts
            as starting gets a rank of its own if it does not replace an old pod within the
            initial_delay, 2 s. Then roles move twice.
        runs: the program in the pods: "rink", "sidecar" (a shell script with the sidecar beside
            it), "run" (`rink run`), or a peer: "client-go", "await-election", "redistribution".
        role_count: how many roles there are.
        ttl: of the member's lease, in seconds. client-go has 15 of its own.
    """

    name: str
    says: str
    replicas: int = 3
    strategy: dict[str, Any] | None = attrs.field(factory=lambda: SURGE)
    happens: str = "roll"
    limits: Limits = ONE_MOVE
    pod_start: tuple[float, float] = (0.5, 1.5)
    handover_wait: float = HANDOVER_WAIT_S
    rebalance_delay: float = REBALANCE_DELAY_S
    leave_delay: float = 0.0
    drain: float = 0.0
    program: tuple[str, ...] = ()
    nodes: int = 1
    has_own_etcd: bool = False
    runs_alone: bool = False
    runs: str = "rink"
    role_count: int = ROLES
    ttl: float = TTL_S

    @property
    def roles(self) -> list[str]:
        """Return the names of the roles."""
        if self.needs_apiserver:
            return ["leader"]
        return [f"role-{number}" for number in range(self.role_count)]

    @property
    def weight(self) -> float:
        """Return a rough measure of how long the row takes.

        The longest rows begin first.
        """
        return 4 * self.rebalance_delay + 3 * self.pod_start[1]

    @property
    def is_peer(self) -> bool:
        """Return whether something else than Rink runs in the pods."""
        return self.runs not in {"rink", "sidecar", "run"}

    @property
    def has_sidecar(self) -> bool:
        """Return whether a program that is no member has the sidecar beside it."""
        return self.runs == "sidecar"

    @property
    def prints(self) -> bool:
        """Return whether the program prints its roles, being no member."""
        return self.runs in {"sidecar", "run", "await-election"}

    @property
    def needs_apiserver(self) -> bool:
        """Return whether the program speaks with the apiserver."""
        return self.runs in {"client-go", "await-election"}


SCENARIOS = [
    # Each role moves once.
    Scenario(name="surge-3", says="surge 1, unavailable 0"),
    Scenario(name="surge-5", says="surge 1, unavailable 0", replicas=5),
    Scenario(name="surge-all", says="surge 100 %, unavailable 0", strategy=SURGE_ALL),
    Scenario(name="slow-start", says="surge 1, slow start", pod_start=(5.0, 7.0)),
    Scenario(
        name="slow-drain",
        says="surge 1, work takes 5 s to end",
        drain=5.0,
        rebalance_delay=15.0,
    ),
    Scenario(
        name="early",
        says="surge 1, begun 1 s after the first start",
        happens="early roll",
        runs_alone=True,
    ),
    Scenario(name="default-4", says="Kubernetes' default", replicas=4, strategy=DEFAULT),
    Scenario(name="default-8", says="Kubernetes' default", replicas=8, strategy=DEFAULT),
    Scenario(name="no-surge-3", says="surge 0, unavailable 1", strategy=NO_SURGE),
    # The unavoidable cost.
    Scenario(
        name="start-2",
        says="Kubernetes' default, start of 2 s",
        replicas=4,
        strategy=DEFAULT,
        pod_start=(2.0, 2.0),
        limits=HONEST,
    ),
    Scenario(
        name="start-9",
        says="Kubernetes' default, start of 9 s",
        replicas=4,
        strategy=DEFAULT,
        pod_start=(9.0, 9.0),
        limits=HONEST,
    ),
    Scenario(
        name="start-20",
        says="Kubernetes' default, start of 20 s",
        replicas=4,
        strategy=DEFAULT,
        pod_start=(20.0, 20.0),
        limits=HONEST,
    ),
    Scenario(
        name="exit-at-once",
        says="surge 1, the program exits at once",
        limits=HONEST,
        program=("--exit-at-once",),
    ),
    Scenario(
        name="two-rolls",
        says="surge 1, a second roll amid the first",
        limits=HONEST,
        happens="two rolls",
    ),
    Scenario(
        name="old-leave",
        says="Kubernetes' default, no wait",
        replicas=4,
        strategy=DEFAULT,
        handover_wait=0.0,
        limits=HONEST,
    ),
    # No pod is left to take over: all pods end before the first new one starts.
    Scenario(
        name="recreate",
        says="Recreate",
        strategy=RECREATE,
        limits=Limits(mean=1.0, most=1, gap_beyond_start=1.0),
    ),
    # A new version that never comes up.
    Scenario(
        name="crash-surge",
        says="surge 1: crash loop, rollback",
        happens="crash loop",
        limits=Limits(most=0, gap=0.0),
    ),
    Scenario(
        name="crash-default",
        says="Kubernetes' default: crash loop, rollback",
        replicas=4,
        strategy=DEFAULT,
        happens="crash loop",
        limits=SHRUNK,
    ),
    Scenario(
        name="crash-no-surge",
        says="surge 0: crash loop, rollback",
        strategy=NO_SURGE,
        happens="crash loop",
        limits=SHRUNK,
    ),
    Scenario(
        name="crash-recreate",
        says="Recreate: crash loop, rollback",
        strategy=RECREATE,
        happens="crash loop",
        limits=HONEST,
    ),
    Scenario(
        name="crash-joined",
        says="surge 1: crashes once joined, rollback",
        happens="crash loop once joined",
        rebalance_delay=25.0,
        limits=Limits(most=0, gap=0.0),
    ),
    Scenario(
        name="crash-joined-default",
        says="Kubernetes' default: crashes once joined, rollback",
        replicas=4,
        strategy=DEFAULT,
        happens="crash loop once joined",
        rebalance_delay=25.0,
        limits=HONEST,
    ),
    # Other workloads and changes.
    Scenario(
        name="evict",
        says="a standby is evicted under a PDB",
        happens="eviction",
        rebalance_delay=60.0,
        limits=Limits(most=0, gap=0.0),
    ),
    Scenario(
        name="statefulset",
        says="StatefulSet, keep_rank",
        strategy=None,
        leave_delay=60.0,
        program=("--keep-rank",),
        limits=Limits(most=0, gap_beyond_start=1.0),
    ),
    Scenario(
        name="scale",
        says="3 pods, 6, and 3 again",
        happens="scaling",
        limits=Limits(mean_at_most=1.0, most=4, gap_p99=0.5),
    ),
    # Faults amid a roll.
    Scenario(
        name="kill-program",
        says="surge 1: kill -9 of a program",
        happens="killed program",
        limits=FAULT,
    ),
    Scenario(
        name="kill-node",
        says="surge 1: kill -9 of one of 2 nodes",
        happens="killed node",
        nodes=2,
        limits=FAULT,
    ),
    Scenario(
        name="freeze-etcd",
        says="surge 1: etcd frozen for 10 s",
        happens="frozen etcd",
        has_own_etcd=True,
        limits=FAULT,
    ),
]

PEERS = [
    # Below the rows of `rink run`, with the same HTTP server.
    Scenario(
        name="await-election",
        says="as k8s-await-election, with an HTTP server: surge 1",
        role_count=1,
        runs="await-election",
        limits=PEER,
    ),
    # One role: Rink beside the leader election of client-go, with its own settings.
    Scenario(name="leader-rink", says="Rink, one role: surge 1", role_count=1, ttl=15.0),
    Scenario(
        name="leader-client-go",
        says="client-go: surge 1",
        role_count=1,
        runs="client-go",
        limits=PEER,
    ),
    Scenario(
        name="leader-rink-kill",
        says="Rink, one role: kill -9 of its holder",
        role_count=1,
        ttl=15.0,
        happens="killed holder",
        limits=Limits(settled=18.0),
    ),
    Scenario(
        name="leader-client-go-kill",
        says="client-go: kill -9 of the leader",
        role_count=1,
        runs="client-go",
        happens="killed holder",
        limits=PEER,
    ),
    # Five pods are replaced. So a scheduler that redistributes on each join and leave does it
    # 10 times.
    Scenario(name="five-rink", says="Rink: surge 1", replicas=5),
    Scenario(
        name="five-redistributed",
        says="redistribution on each join and leave: surge 1",
        replicas=5,
        runs="redistribution",
        limits=PEER,
    ),
]


def beside(name: str, says: str, **more: Any) -> Scenario:
    """Return a row with a shell script that polls the sidecar beside it."""
    return Scenario(name=f"sidecar-{name}", says=f"sidecar: {says}", runs="sidecar", **more)


SIDECARS = [
    beside("surge", "surge 1, unavailable 0"),
    beside("default", "Kubernetes' default", replicas=4, strategy=DEFAULT),
    beside(
        "recreate",
        "Recreate",
        strategy=RECREATE,
        program=("--without-hook",),
        # A script answers its losses one by one, and then two processes end one after the other.
        limits=Limits(mean=1.0, most=1, gap_beyond_start=3.0),
    ),
    beside(
        "recreate-hook",
        "Recreate, with the sleep hook",
        strategy=RECREATE,
        limits=Limits(mean=1.0, most=1, gap_beyond_start=3.0),
    ),
    # A new version whose program never asks for a role, or crashes once it does.
    beside("crash-surge", "surge 1: crash loop, rollback", happens="crash loop", limits=STILL),
    beside(
        "crash-default",
        "Kubernetes' default: crash loop, rollback",
        replicas=4,
        strategy=DEFAULT,
        happens="crash loop",
        limits=SHRUNK,
    ),
    beside(
        "crash-recreate",
        "Recreate: crash loop, rollback",
        strategy=RECREATE,
        happens="crash loop",
        limits=Limits(most=1),
    ),
    beside(
        "crash-late",
        "surge 1: crashes after 4 s, rollback",
        happens="crash loop after a while",
        limits=STILL,
    ),
    beside(
        "crash-joined",
        "surge 1: crashes once it asks for roles, rollback",
        happens="crash loop once joined",
        rebalance_delay=25.0,
        limits=Limits(most=2, gap=0.5),
    ),
    # Faults, and programs that do not wait.
    beside(
        "program",
        "kill -9 of a program that asks no more",
        happens="killed program for good",
        limits=Limits(settled=15.0),
    ),
    beside("kill", "surge 1: kill -9 of a sidecar", happens="killed sidecar", limits=FAULT),
    beside("exit", "surge 1: exits at once, with the sleep hook", program=("--exit-at-once",)),
    beside(
        "exit-bare",
        "surge 1: exits at once, without a hook",
        program=("--exit-at-once", "--without-hook"),
        limits=Limits(mean=1.0, most=1, gap=15.0),
    ),
    # `rink run`: a standby runs no server. The role goes to the pod that has waited longest, so
    # first to the old pods.
    Scenario(
        name="run-server",
        says="`rink run` with an HTTP server: surge 1",
        runs="run",
        role_count=1,
        limits=Limits(most=3, gap=2.0),
    ),
    Scenario(
        name="run-server-kill",
        says="`rink run` with an HTTP server: kill -9 of `rink run`",
        runs="run",
        role_count=1,
        happens="killed holder",
        limits=FAULT,
    ),
]
BY_NAME = {scenario.name: scenario for scenario in (*SCENARIOS, *SIDECARS, *PEERS)}

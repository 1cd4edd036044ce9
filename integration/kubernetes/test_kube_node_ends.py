"""Test that the node ends pods in the kubelet's order.

The apiserver is real.
"""

import pytest
from node_support import DEAF, FOREVER, Bench, hook, shell, sidecar

# The first one may have to build the control plane.
pytestmark = [pytest.mark.deep, pytest.mark.timeout(1800)]

TOGETHER_S = 1.5
"""Longest time between steps that begin together, on a busy machine. Hooks take longer."""


@pytest.fixture(scope="module")
def bench(kube):
    made = Bench(kube, "node-ends")
    yield made
    made.close()


def test_end_starts_all_hooks_together_and_signals_each_after_its_own(bench):
    """The end of a pod starts all hooks at once; SIGTERM follows each one.

    A main container whose hook is short gets SIGTERM while the other's hook still runs.
    """
    bench.put(
        "hooks",
        shell("short", FOREVER, lifecycle=hook("sleep 2")),
        shell("long", FOREVER, lifecycle=hook("sleep 5")),
        shell("none", FOREVER),
    )
    bench.wait_ready("hooks")
    bench.delete("hooks")
    ending = bench.when("hooks", "ending", "")
    for name in ("short", "long"):
        assert bench.when("hooks", "hook", name) - ending < TOGETHER_S
        assert bench.when("hooks", "SIGTERM", name) >= bench.when("hooks", "hook ended", name)
    assert bench.when("hooks", "SIGTERM", "none") - ending < TOGETHER_S
    assert bench.when("hooks", "ended", "short") < bench.when("hooks", "hook ended", "long")


def test_end_signals_sidecars_after_the_mains_in_reverse_order(bench):
    bench.put(
        "sidecars",
        shell("main", "trap 'sleep 1; exit 0' TERM; while :; do sleep 0.05; done"),
        initContainers=[sidecar("first", FOREVER), sidecar("second", FOREVER)],
    )
    bench.wait_ready("sidecars")
    bench.delete("sidecars")
    ended = {name: bench.when("sidecars", "ended", name) for name in ("main", "second", "first")}
    assert ended["main"] <= bench.when("sidecars", "SIGTERM", "second")
    assert ended["second"] <= bench.when("sidecars", "SIGTERM", "first")


def test_end_runs_a_sidecars_hook_with_the_others_undisturbed(bench):
    """A sidecar's hook runs with the others, and no SIGTERM interrupts it.

    The main container ends at once. The sidecar's hook runs for 2 s more.
    """
    bench.put(
        "hooked",
        shell("main", FOREVER),
        initContainers=[sidecar("side", FOREVER, lifecycle=hook("sleep 2"))],
    )
    bench.wait_ready("hooked")
    bench.delete("hooked")
    ending = bench.when("hooked", "ending", "")
    assert bench.when("hooked", "hook", "side") - ending < TOGETHER_S
    assert bench.when("hooked", "ended", "main") < bench.when("hooked", "hook ended", "side")
    assert bench.when("hooked", "hook ended", "side") <= bench.when("hooked", "SIGTERM", "side")


def test_end_kills_at_the_grace_and_gives_a_sidecar_2_s_more(bench):
    bench.put(
        "deaf",
        shell("main", DEAF),
        initContainers=[sidecar("side", DEAF)],
        terminationGracePeriodSeconds=3,
    )
    bench.wait_ready("deaf")
    bench.delete("deaf")
    ending = bench.when("deaf", "ending", "")
    assert 3.0 <= bench.when("deaf", "SIGKILL", "main") - ending < 3.0 + TOGETHER_S
    # The kubelet counts whole seconds, so the sidecar's turn begins when the grace is used up.
    waited = bench.when("deaf", "SIGKILL", "side") - bench.when("deaf", "SIGTERM", "side")
    assert 2.0 <= waited < 2.0 + TOGETHER_S


def test_end_signals_2_s_before_the_kill_where_a_hook_uses_up_the_grace(bench):
    bench.put(
        "hooking",
        shell("main", DEAF, lifecycle=hook("sleep 60")),
        terminationGracePeriodSeconds=2,
    )
    bench.wait_ready("hooking")
    bench.delete("hooking")
    ending = bench.when("hooking", "ending", "")
    term, kill = (bench.when("hooking", what, "main") for what in ("SIGTERM", "SIGKILL"))
    assert 2.0 <= term - ending < 2.0 + TOGETHER_S
    assert 2.0 <= kill - term < 2.0 + TOGETHER_S


def test_end_begins_anew_with_a_shorter_grace(bench):
    bench.put("hurried", shell("main", DEAF), terminationGracePeriodSeconds=60)
    bench.wait_ready("hurried")
    bench.api.delete(bench.path("hurried"))
    bench.wait(lambda: bench.times("hurried", "SIGTERM", "main"), "SIGTERM")
    bench.delete("hurried", grace=1)
    assert bench.notes("hurried")[-1]["what"] == "removed"
    assert bench.when("hurried", "SIGKILL", "main") - bench.when("hurried", "ending", "") < 10


def test_end_of_a_forced_deletion_ends_the_processes(bench):
    bench.put("forced", shell("main", FOREVER))
    bench.wait_ready("forced")
    bench.delete("forced", grace=0)
    bench.wait(lambda: bench.times("forced", "ended", "main"), "the end of its process")


def test_readiness_is_probed_on_while_a_pod_ends(bench):
    """A pod that ends is still probed for readiness.

    As with the kubelet, the condition follows the probe, and the end sets no condition of its own.
    """
    probe = {"exec": {"command": ["test", "-e", "ready"]}, "periodSeconds": 1}
    script = "touch ready; trap 'rm ready; sleep 6; exit 0' TERM; while :; do sleep 0.05; done"
    bench.put("draining", shell("main", script, readinessProbe=probe | {"failureThreshold": 1}))
    bench.wait_ready("draining")
    bench.api.delete(bench.path("draining"))
    bench.wait(lambda: bench.condition("draining") == "False", "not ready while it ends")
    assert bench.pod("draining") is not None
    assert not bench.times("draining", "ended", "main")
    bench.wait(lambda: bench.pod("draining") is None, "its end")

"""Test that `rink sidecar --label-pod` labels its pod.

The apiserver is real, with RBAC and the policy.
"""

import signal
import time
from urllib.parse import urlsplit

import pytest
from kube_api import at
from labelled_pods import APP, LABEL, Space, remove_policy
from pod_labels import LabelledSidecar, in_pod
from sidecar_support import DEADLINE_S, wait_for

# The first one may have to build the control plane.
pytestmark = [pytest.mark.deep, pytest.mark.timeout(1800)]

ON = APP | {LABEL: "held"}


@pytest.fixture(scope="module")
def space(kube):
    """Create a namespace with the account, and no policy yet."""
    made = Space.made(kube, "following")
    yield made
    made.close()


@pytest.fixture
def policy(space):
    """Apply the policy, and wait until it has an effect."""
    pod = space.pod(f"asks-{time.monotonic_ns()}")
    space.apply_policy(space.api(pod), pod)
    yield
    remove_policy(space.cluster.api)


@pytest.fixture
def labelled(space, tmp_path, etcd_url, prefix):
    """Yield a function that starts a sidecar in a new pod, and kill all."""
    made = []

    def labelled(name, **metadata):
        pod = space.pod(name, **metadata)
        url = urlsplit(space.cluster.access.url)
        environment = in_pod(url.hostname, url.port, name, space.name)
        mounted = space.mount(pod, tmp_path / name)
        made.append(LabelledSidecar(environment, mounted, tmp_path, name, etcd_url, prefix))
        return pod, made[-1].start()

    yield labelled
    for one in made:
        one.kill()


def test_label_follows_the_role_and_goes_at_the_end(space, policy, labelled):
    _, sidecar = labelled("web-1", labels=ON)
    wait_for(lambda: space.labels("web-1") == APP, sidecar.said)  # a former life left it
    sidecar.release(sidecar.hold())
    sidecar.hold()
    wait_for(lambda: space.labels("web-1") == ON, sidecar.said)
    sidecar.process.send_signal(signal.SIGTERM)
    assert sidecar.process.wait(DEADLINE_S) == 0
    assert space.labels("web-1") == APP
    assert "cannot change the labels" not in sidecar.said()


def test_token_that_is_replaced_is_taken(space, policy, labelled, tmp_path):
    pod, sidecar = labelled("web-2")
    space.rotate(pod, tmp_path / "web-2")
    grant = sidecar.hold()
    wait_for(lambda: space.labels("web-2") == ON, sidecar.said)
    space.rotate(pod, tmp_path / "web-2")
    sidecar.release(grant)
    wait_for(lambda: space.labels("web-2") == APP, sidecar.said)


def test_pod_gets_no_label_until_there_is_a_policy(space, labelled):
    _, sidecar = labelled("web-3", labels=ON)
    wait_for(lambda: space.labels("web-3") == APP, sidecar.said)
    sidecar.hold()
    wait_for(lambda: "apply the ValidatingAdmissionPolicy" in sidecar.said(), sidecar.said)
    assert space.labels("web-3") == APP
    pod = space.pod("asks")
    space.apply_policy(space.api(pod), pod)
    try:
        wait_for(lambda: space.labels("web-3") == ON, sidecar.said)
    finally:
        remove_policy(space.cluster.api)


def test_killed_sidecar_leaves_its_label_until_it_is_back(space, policy, labelled):
    _, sidecar = labelled("web-4")
    sidecar.hold()
    wait_for(lambda: space.labels("web-4") == ON, sidecar.said)
    sidecar.kill()
    assert space.labels("web-4") == ON
    sidecar.start()
    wait_for(lambda: space.labels("web-4") == APP, sidecar.said)


def test_pod_that_is_gone_costs_no_role(space, policy, labelled):
    _, sidecar = labelled("web-5")
    grant = sidecar.hold()
    wait_for(lambda: space.labels("web-5") == ON, sidecar.said)
    space.cluster.api.delete(at("pods", space.name, "web-5"), grace=0)
    sidecar.release(grant)
    sidecar.hold()
    wait_for(lambda: "cannot change the labels" in sidecar.said(), sidecar.said)
    assert sidecar.call("GET", "/v1/role?name=leader")[1]["held"]

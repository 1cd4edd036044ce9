"""Test `rink sidecar --label-pod` on API servers with trouble.

They answer, hang or refuse.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
from pod_labels import LABEL, OPTIONS, SCRIPT, Kube, LabelledSidecar, in_pod
from sidecar_support import DEADLINE_S, wait_for

from rink.sidecar.pod_label import RELEASE_WAIT_S

pytestmark = [pytest.mark.waits, pytest.mark.timeout(180)]

BUSY_S = 8.0
"""Seconds that a busy machine may add to a bound."""
LATE = r"cannot change the labels of the pod, retrying: .*(not answered in time|timed out)"
"""Pattern of a call that took longer than its 2 s, as it may on a busy machine."""
PATIENT_S = 60.0
"""Time limit of a call, where another cause than its end must be logged: one a minute is."""
END_S = 3 + RELEASE_WAIT_S + BUSY_S
"""Most seconds to the end of a role without an answer: 3 s, and 2 s for the label."""


@pytest.fixture
def kube(tmp_path):
    made = Kube(tmp_path)
    yield made
    made.close()


@pytest.fixture
def labelled(tmp_path, etcd_url, prefix, kube):
    """Yield a function that starts a sidecar in the pod, and kill all."""
    made = []

    def labelled(name="rink", host=None, port=None, **more):
        environment = in_pod(host or kube.host, port or kube.port)
        environment["CALL_LIMIT_S"] = str(kube.limit_s)
        made.append(
            LabelledSidecar(environment, kube.mounted, tmp_path, name, etcd_url, prefix, **more)
        )
        return made[-1].start()

    yield labelled
    for one in made:
        one.kill()


def is_on(kube):
    """Return whether a sidecar has put the label on.

    Before the first request was executed, it is the one that a former sidecar left behind.
    """
    return kube.executed > 0 and kube.labels == {"app": "web", LABEL: "held"}


def is_off(kube):
    return kube.labels == {"app": "web"}


def is_late(sidecar):
    """Return whether a call was given up because the machine was slow."""
    return bool(re.search(LATE, sidecar.said()))


def end(sidecar):
    """Send SIGTERM, and return the exit status and the seconds to the end."""
    began = time.monotonic()
    sidecar.process.send_signal(signal.SIGTERM)
    return sidecar.process.wait(DEADLINE_S), time.monotonic() - began


# ── an API server that answers ───────────────────────────────────────────────────────────────


def test_label_follows_the_role(kube, labelled):
    sidecar = labelled()
    wait_for(lambda: is_off(kube), sidecar.said)  # a former life left it
    grant = sidecar.hold()
    wait_for(lambda: is_on(kube), sidecar.said)
    sidecar.release(grant)
    wait_for(lambda: is_off(kube), sidecar.said)
    sidecar.hold()
    wait_for(lambda: is_on(kube), sidecar.said)
    wait_for(lambda: "put on the pod" in sidecar.said(), sidecar.said)  # after the answer
    status, _ = end(sidecar)
    assert status == 0
    assert is_off(kube) or is_late(sidecar), sidecar.said()
    assert "Traceback" not in sidecar.said()


def test_role_of_the_pod_itself_has_its_label(kube, labelled):
    sidecar = labelled(options=(*OPTIONS, "--role", "leader"))
    wait_for(lambda: "put on the pod" in sidecar.said(), sidecar.said)
    assert is_on(kube)


def test_label_of_a_role_that_is_never_held_is_taken_off_once(kube, labelled):
    sidecar = labelled(roles=("leader", "other"))
    wait_for(lambda: is_off(kube), sidecar.said)
    grant = sidecar.hold("third")
    sidecar.release(grant)
    first, *again = [labels for _, labels in kube.asked]
    assert first == {LABEL: None, "etcd-rink/other": None}
    assert again == [] or is_late(sidecar), sidecar.said()
    assert end(sidecar)[0] == 0


def test_hundred_quick_turns_leave_the_label_right(kube, labelled):
    sidecar = labelled()
    for _ in range(100):
        sidecar.release(sidecar.hold())
    grant = sidecar.hold()
    wait_for(lambda: is_on(kube), sidecar.said)
    sidecar.release(grant)
    wait_for(lambda: is_off(kube), sidecar.said)
    assert "cannot change the labels" not in sidecar.said() or is_late(sidecar), sidecar.said()
    wait_for(lambda: time.monotonic() - kube.asked[-1][0] > 5)  # a late one would be repeated
    assert is_off(kube)


def test_killed_sidecar_leaves_its_label_until_it_is_back(kube, labelled):
    sidecar = labelled()
    sidecar.hold()
    wait_for(lambda: is_on(kube), sidecar.said)
    sidecar.kill()
    assert is_on(kube)
    sidecar.start()
    wait_for(lambda: is_off(kube), sidecar.said)


def test_token_and_ca_that_are_replaced_are_read_again(kube, labelled):
    sidecar = labelled()
    wait_for(lambda: is_off(kube), sidecar.said)
    kube.token = "token-2"
    kube.mount()
    sidecar.hold()
    wait_for(lambda: is_on(kube), sidecar.said)
    assert "answered 401" not in sidecar.said()
    assert "token-2" not in sidecar.said()


def test_api_server_at_an_ipv6_address_is_reached(tmp_path, labelled):
    try:
        kube = Kube(tmp_path / "six", "::1") if (tmp_path / "six").mkdir() is None else None
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    try:
        sidecar = labelled(host="::1", port=kube.port)
        sidecar.kill()
        sidecar._line[sidecar._line.index(str(SCRIPT)) + 1] = str(kube.mounted)
        sidecar.start()
        wait_for(lambda: is_off(kube), sidecar.said)
    finally:
        kube.close()


# ── trouble ──────────────────────────────────────────────────────────────────────────────────


def test_token_that_may_change_more_puts_no_label_on(kube, labelled):
    kube.is_open, kube.limit_s = True, PATIENT_S
    sidecar = labelled()
    wait_for(lambda: is_off(kube), sidecar.said)
    grant = sidecar.hold()
    wait_for(lambda: "ValidatingAdmissionPolicy" in sidecar.said(), sidecar.said)
    assert is_off(kube)
    kube.is_open = False
    sidecar.release(grant)
    sidecar.hold()
    wait_for(lambda: is_on(kube), sidecar.said)


def hang(kube):
    kube.is_hung = True


def break_down(kube):
    kube.status = 500


def forbid(kube):
    kube.status = 403


@pytest.mark.parametrize("trouble", [hang, break_down, forbid])
def test_api_server_in_trouble_lets_roles_change_and_the_sidecar_end(kube, labelled, trouble):
    sidecar = labelled()
    grant = sidecar.hold()
    wait_for(lambda: is_on(kube), sidecar.said)
    trouble(kube)
    began = time.monotonic()
    sidecar.release(grant)
    sidecar.hold()
    assert time.monotonic() - began < RELEASE_WAIT_S + BUSY_S
    status, seconds = end(sidecar)
    assert status == 0
    assert seconds < END_S
    assert sidecar.said().count("cannot change the labels") <= 1


def test_api_server_that_is_away_costs_no_role(kube, labelled):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        sidecar = labelled(port=closed.getsockname()[1])
        grant = sidecar.hold()
        began = time.monotonic()
        sidecar.release(grant)
        sidecar.hold()
        assert time.monotonic() - began < RELEASE_WAIT_S + BUSY_S  # a former life may have left it
        assert sidecar.said().count("Connection refused") == 1
        assert sidecar.call("GET", "/v1/role?name=leader")[1]["held"]


def test_wrong_ca_is_said_and_nothing_is_sent(kube, labelled):
    kube.files.renew_authority()
    kube.mount()
    kube.limit_s = PATIENT_S
    sidecar = labelled()
    sidecar.hold()
    wait_for(lambda: "CERTIFICATE_VERIFY_FAILED" in sidecar.said(), sidecar.said)
    assert kube.asked == []


def test_name_that_is_never_found_keeps_no_sidecar(kube, labelled):
    sidecar = labelled(host="no.such.host.invalid")
    sidecar.hold()
    status, seconds = end(sidecar)
    assert status == 0
    assert seconds < END_S


# ── a start that is refused ──────────────────────────────────────────────────────────────────


def refused(mounted, environment, role="leader", status=1):
    line = [sys.executable, str(SCRIPT), str(mounted), "sidecar", "--group", "orders"]
    line += ["--listen", "127.0.0.1:0", "--public", "", "--label-pod", role]
    kept = {name: value for name, value in os.environ.items() if "KUBERNETES" not in name}
    ran = subprocess.run(
        line,
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert ran.returncode == status, ran.stderr
    assert "Traceback" not in ran.stderr
    return " ".join(ran.stderr.split())


@pytest.mark.parametrize("role", ["BTC/ETH", "../x", "x" * 512])
def test_role_that_cannot_be_a_label_is_refused(kube, role):
    said = refused(kube.mounted, in_pod(kube.host, kube.port), role, status=2)
    assert "cannot be a label of Kubernetes" in said
    assert kube.asked == []


def test_process_in_no_pod_is_refused(kube):
    said = refused(kube.mounted, {})
    assert "KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT, POD_NAME" in said


def test_pod_without_a_token_is_refused(kube):
    (kube.mounted / "token").unlink()
    said = refused(kube.mounted, in_pod(kube.host, kube.port))
    assert "needs the token of a service account" in said

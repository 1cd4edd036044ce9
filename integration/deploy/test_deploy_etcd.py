"""Test the etcd of deploy/etcd as its manifests have it.

The tests cover TLS, users, the loss of a member, and backups.
"""

import json
import re
import shutil
import socket
import ssl
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from etcd_pods import NAMESPACE, EtcdPods
from network import Network, refusal

pytestmark = pytest.mark.waits

REPEAT_TIMEOUT_S = 30.0

JOIN = """
import json, sys, rink
endpoints, group, settings = json.loads(sys.argv[1])
try:
    with (
        rink.Session(endpoints, ttl=5, timeout=20, **settings) as s,
        rink.Rink(s, group, rebalance_delay=0) as r,
        r.await_role("leader", 20) as role,
    ):
        print(json.dumps({"token": role.token}))
except rink.RinkError as error:
    print(json.dumps({"error": type(error).__name__, "text": str(error)}))
"""

LOOK = """
import json, subprocess, sys, rink
endpoints, settings = json.loads(sys.argv[1])
options = [f"--{name}={value}" for name, value in {"endpoints": endpoints, **settings}.items()]
with rink.Session(endpoints, ttl=5, **settings) as s, rink.Rink(s, "polls", name="one") as r:
    assert r.wait_settled(20)
    for command in (["status", "polls"], ["owner", "polls", "bank-1"], ["history", "polls"]):
        subprocess.run([sys.executable, "-m", "rink.cli", *command, *options], check=True)
"""

ASK = """
import ssl, sys, urllib.error, urllib.request
ca, cert, key = sys.argv[1:]
context = ssl.create_default_context(cafile=ca)
context.load_cert_chain(cert, key)
try:
    url = "https://etcd-0.etcd:2380/version"
    with urllib.request.urlopen(url, timeout=10, context=context) as answer:
        print(answer.status)
except OSError as error:
    reason = getattr(error, "reason", error)
    print("refused" if isinstance(reason, (ssl.SSLError, ConnectionError)) else repr(reason))
"""


@pytest.fixture(scope="module")
def pods(tmp_path_factory):
    missing = refusal()
    if missing:
        pytest.skip(missing)
    network = Network()
    try:
        made = EtcdPods(tmp_path_factory.mktemp("cluster"), network)
        try:
            made.setup("certificates", str(made.folder / "authorities"))
            made.start()
            made.setup("user", str(made.folder / "authorities"), "pollers", "polls", "shop/bill")
            yield made
        finally:
            made.close()
    finally:
        network.close()


def join(pods, group, **settings):
    """Join a group and take a role in a process; return what it says."""
    told = json.dumps([pods.endpoints, group, settings])
    done = pods.in_cluster([sys.executable, "-c", JOIN, told])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def files_of(pods, user):
    folder = pods.folder / "secrets" / f"etcd-{user}"
    return {
        "ca": str(folder / "ca.crt"),
        "cert": str(folder / "tls.crt"),
        "key": str(folder / "tls.key"),
    }


def texts_of(pods, user):
    return {name: Path(file).read_text() for name, file in files_of(pods, user).items()}


def served(pods):
    """Return the certificate that the first member shows to a client."""
    files = files_of(pods, "pollers")
    context = ssl.create_default_context(cafile=files["ca"])
    context.load_cert_chain(files["cert"], files["key"])
    address = (pods.parties["etcd-0"].address, 2379)
    with (
        socket.create_connection(address, timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="etcd-0.etcd") as wrapped,
    ):
        return ssl.DER_cert_to_PEM_cert(wrapped.getpeercert(binary_form=True))


def test_user_holds_roles_in_its_own_groups(pods):
    for group in ("polls", "shop/bill"):
        assert join(pods, group, **files_of(pods, "pollers"))["token"] > 0


def test_user_looks_at_its_own_group(pods):
    """A user may look at its own group.

    It uses the commands of the how-to, which read leases, too.
    """
    told = json.dumps([pods.endpoints, files_of(pods, "pollers")])
    done = pods.in_cluster([sys.executable, "-c", LOOK, told])
    assert done.returncode == 0, done.stderr
    assert re.search(r"one +active, coordinates .* ≤ \d s", done.stdout), done.stdout
    assert re.search(r"bank-1 +one +one .*held", done.stdout), done.stdout


@pytest.mark.parametrize("group", ["poll", "polls2", "shop", "other"])
def test_user_is_refused_in_another_group(pods, group):
    said = join(pods, group, **files_of(pods, "pollers"))
    assert said["error"] == "EtcdAuth", said


def test_client_without_a_certificate_is_refused(pods):
    said = join(pods, "polls", ca=files_of(pods, "pollers")["ca"])
    assert said["error"] == "EtcdTls", said


def test_certificate_of_the_peers_is_refused_for_clients(pods):
    peer = files_of(pods, "peer")
    said = join(pods, "polls", **{**peer, "ca": files_of(pods, "pollers")["ca"]})
    assert said["error"] == "EtcdTls", said


def test_certificate_of_a_client_is_refused_among_peers(pods):
    """A client's certificate is refused when a member presents it as a peer.

    A process that could join as a peer would get all data. The test tries it from the pod of a
    peer.
    """
    assert ask_peer(pods, files_of(pods, "peer")) == "200"
    files = {**files_of(pods, "pollers"), "ca": files_of(pods, "peer")["ca"]}
    assert ask_peer(pods, files) == "refused"


def ask_peer(pods, files):
    """Connect to the first member's peer port from the second pod.

    Return the HTTP status or the error.
    """
    command = pods.parties["etcd-1"].command
    done = pods.in_cluster(
        [*command, *pods.with_names(), sys.executable, "-c", ASK, *files.values()]
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_certificate_without_a_user_is_refused(pods):
    """The certificate of a deleted user grants nothing."""
    folder = str(pods.folder / "authorities")
    pods.setup("user", folder, "former", "former")
    files = files_of(pods, "former")
    assert join(pods, "former", **files)["token"] > 0
    done = pods.kubectl(
        "exec", "etcd-0", "--container=etcd", "--", "etcdctl", "user", "delete", "former"
    )
    assert done.returncode == 0, done.stderr
    assert join(pods, "former", **files)["error"] == "EtcdAuth"


def test_setup_may_be_repeated_and_renews_certificates(pods):
    before = texts_of(pods, "pollers")
    pods.setup("certificates", str(pods.folder / "authorities"))
    pods.setup("user", str(pods.folder / "authorities"), "pollers", "polls", "shop/bill")
    after = texts_of(pods, "pollers")
    assert {name for name in before if before[name] != after[name]} == {"cert", "key"}
    assert join(pods, "polls", **files_of(pods, "pollers"))["token"] > 0
    assert served(pods) == texts_of(pods, "server")["cert"]  # without a restart


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("Pollers", "polls"), "only lower-case letters"),
        (("root", "polls"), "this name is taken"),
        (("pollers", "gr*up"), "only letters, digits"),
        (("pollers", ".."), "only letters, digits"),
        (("pollers",), "usage"),
    ],
)
def test_setup_refuses_names_that_it_cannot_use(pods, arguments, words):
    done = pods.setup("user", str(pods.folder / "authorities"), *arguments, check=False)
    assert done.returncode == 1
    assert words in done.stderr


def test_backup_is_checked_and_the_oldest_is_deleted(pods):
    kept = pods.volume("backup", "backups")
    for day in range(1, 15):
        (kept / f"etcd-2020-01-{day:02}T021700Z.db").write_bytes(b"an older backup")
    names = pods.back_up()
    assert len(names) == 14
    assert "etcd-2020-01-01T021700Z.db" not in names
    assert (kept / names[-1]).stat().st_size > 10_000
    assert not names[-1].startswith("etcd-2020")


def test_probes_of_the_manifest_succeed_with_users_on(pods):
    version = tuple(map(int, re.findall(r"\d+", pods.version())[:3]))
    if version < (3, 5, 11):
        pytest.skip(f"etcd {version} has no /livez yet")
    for address, path in pods.probes():
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            assert answer.status == 200, (path, answer.read())


def etcdctl(pods, *arguments, repeats_at=None):
    """Run etcdctl in the first pod; return what it says.

    It is repeated while its error has the words `repeats_at`.
    """
    deadline = time.monotonic() + REPEAT_TIMEOUT_S
    while True:
        done = pods.kubectl("exec", "etcd-0", "--container=etcd", "--", "etcdctl", *arguments)
        if done.returncode == 0:
            return done.stdout
        assert repeats_at is not None, done.stderr
        assert repeats_at in done.stderr, done.stderr
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.5)


def test_member_that_lost_its_volume_is_replaced(pods):
    """A member that lost its volume is replaced with the state `existing`.

    With `new`, as at the first start, the cluster would refuse it. The how-to sets `existing`.
    """
    pods.lose_volume("etcd-1")
    status, log = pods.end_of("etcd-1")
    assert status != 0
    assert "has already been bootstrapped" in log
    (line,) = [one for one in etcdctl(pods, "member", "list").splitlines() if "etcd-1" in one]
    etcdctl(pods, "member", "remove", line.partition(",")[0])
    url = f"--peer-urls=https://etcd-1.etcd.{NAMESPACE}.svc:2380"
    # etcd refuses while its members have been connected for less than 5 s.
    etcdctl(pods, "member", "add", "etcd-1", url, repeats_at="unhealthy cluster")
    shutil.rmtree(pods.volume("etcd-1", "data"))
    pods.cluster_state = "existing"
    pods.start()
    assert join(pods, "polls", **files_of(pods, "pollers"))["token"] > 0


def test_backup_is_restored_with_its_users_and_higher_tokens(pods):
    etcdctl(pods, "put", "kept", "before the backup")
    name = pods.back_up()[-1]
    etcdctl(pods, "put", "kept", "after the backup")
    token = join(pods, "polls", **files_of(pods, "pollers"))["token"]
    for member in pods.parties:
        pods.kill(member)
    pods.restore(pods.volume("backup", "backups") / name)
    pods.start()
    assert "before the backup" in etcdctl(pods, "get", "kept")
    restored = join(pods, "polls", **files_of(pods, "pollers"))["token"]
    assert not pods.can_bump or restored > token
    assert join(pods, "other", **files_of(pods, "pollers"))["error"] == "EtcdAuth"


def test_one_member_lost_leaves_roles_to_be_had(pods):
    pods.kill("etcd-0")
    try:
        assert join(pods, "polls", **files_of(pods, "pollers"))["token"] > 0
    finally:
        pods.start()

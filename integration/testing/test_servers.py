"""Test etcd servers: faults, kept data, settings, TLS and clusters."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import trustme
from processes import is_alive, thread_states
from servers_support import QUICK, wait_until

from rink.errors import (
    ConfigError,
    EtcdAuth,
    EtcdError,
    EtcdUnavailable,
    UsageError,
)
from rink.etcd.api import Put
from rink.etcd.client import Client
from rink.testing import Place, TlsFiles, etcd_cluster, local_etcd
from rink.testing.etcd_server import start
from rink.testing.process import ports as port_blocks

PUT = ((), (Put(b"a", b"1"),))

pytestmark = [pytest.mark.waits, pytest.mark.usefixtures("no_given_etcd")]


# --------------------------------------------------------------------------- one node


def test_killed_node_has_its_data_and_address_again():
    with local_etcd(**QUICK) as node, Client([node.endpoint]) as etcd:
        etcd.txn(*PUT)
        pid, endpoint = node.pid, node.endpoint
        node.kill()
        assert not node.is_running
        assert node.pid is None
        assert not is_alive(pid)
        with pytest.raises(EtcdUnavailable):
            etcd.range(b"a", timeout=0.5)
        node.kill()
        node.start()
        assert node.endpoint == endpoint
        assert etcd.range(b"a").kvs[0].value == b"1"
        node.restart()
        assert etcd.range(b"a").kvs[0].value == b"1"
        assert node.pid != pid


def test_frozen_node_answers_nothing_until_it_is_thawed():
    with local_etcd(**QUICK) as node, Client([node.endpoint]) as etcd:
        etcd.txn(*PUT)
        node.freeze()
        assert node.is_running
        assert node.is_frozen
        assert not node.is_healthy
        with pytest.raises(EtcdUnavailable):
            etcd.range(b"a", timeout=0.5)
        node.thaw()
        assert not node.is_frozen
        node.wait_healthy()
        assert etcd.range(b"a").kvs[0].value == b"1"


def test_node_has_stopped_when_freeze_returns():
    """After SIGSTOP is sent, threads of etcd may run for another millisecond."""
    with local_etcd(**QUICK) as node, Client([node.endpoint]) as etcd:
        is_over, answers, pid = threading.Event(), [], node.pid

        def read():
            while not is_over.is_set():
                with contextlib.suppress(EtcdUnavailable):
                    answers.append(etcd.range(b"a", timeout=0.05))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for turn in range(2000):
                node.freeze()
                assert thread_states(pid) == {"T"}
                node.thaw()
                time.sleep(0.005)
                if turn >= 100 and answers:
                    break
            node.freeze()
            node.freeze()  # it is frozen already
            assert thread_states(pid) == {"T"}
        finally:
            is_over.set()
            reader.join()
        assert answers, "etcd answered no read between two freezes"


def test_frozen_node_can_be_stopped_and_killed():
    with local_etcd(**QUICK) as node:
        node.freeze()
        node.stop()
        assert not node.is_running
        node.start()
        node.freeze()
        node.kill()
        assert not node.is_frozen
        node.start()


def test_given_folder_survives_with_its_ports(tmp_path):
    with local_etcd(data_dir=tmp_path, **QUICK) as node, Client([node.endpoint]) as etcd:
        etcd.txn(*PUT)
        endpoint = node.endpoint
    with local_etcd(data_dir=tmp_path, **QUICK) as node, Client([node.endpoint]) as etcd:
        assert node.endpoint == endpoint
        assert etcd.range(b"a").kvs[0].value == b"1"
        assert node.log_path.is_relative_to(tmp_path)
    with (
        pytest.raises(ConfigError, match="a cluster of size 1, not 3"),
        etcd_cluster(data_dir=tmp_path),
    ):
        pass


def test_setting_that_etcd_refuses_shows_its_log():
    refused = pytest.raises(EtcdUnavailable, match="flag provided but not defined: -no-such-thing")
    with refused, local_etcd(extra_args=("--no-such-thing",)):
        pass


def test_settings_in_the_environment_do_not_reach_the_server(monkeypatch):
    monkeypatch.setenv("ETCD_LISTEN_CLIENT_URLS", "http://127.0.0.1:1")
    monkeypatch.setenv("ETCD_QUOTA_BACKEND_BYTES", "nonsense")
    with local_etcd() as node:
        assert node.is_healthy


def test_server_without_fsync_and_with_quick_elections_runs():
    with local_etcd(fsync=False, **QUICK) as node, Client([node.endpoint]) as etcd:
        assert etcd.grant(1).ttl == 1  # the shortest lease follows the election timeout


# --------------------------------------------------------------------------- where it comes from


def test_port_that_another_process_took_is_replaced(monkeypatch):
    choose = port_blocks.free_ports
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        chosen = []

        def taken_port_first(count):
            ports = choose(count)
            chosen.append(ports if chosen else [taken, *ports[1:]])
            return chosen[-1]

        monkeypatch.setattr(port_blocks, "free_ports", taken_port_first)
        with local_etcd() as node:
            assert node.is_healthy
            assert node.endpoint == f"http://127.0.0.1:{chosen[1][0]}"


def test_taken_port_of_kept_data_is_an_error_and_keeps_the_data(tmp_path):
    with local_etcd(data_dir=tmp_path, **QUICK) as node, Client([node.endpoint]) as etcd:
        etcd.txn(*PUT)
        port = int(node.endpoint.rpartition(":")[2])
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        other.listen()
        refused = pytest.raises(EtcdUnavailable, match="address already in use")
        with refused, local_etcd(data_dir=tmp_path, **QUICK):
            pass
    with local_etcd(data_dir=tmp_path, **QUICK) as node, Client([node.endpoint]) as etcd:
        assert etcd.range(b"a").kvs[0].value == b"1"


def test_ports_of_a_living_run_are_not_given_to_another():
    """Another run's cluster must not get the ports of a node that is down."""
    script = f"from {port_blocks.__name__} import free_ports; print(free_ports(300)); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        other_ports = json.loads(other.stdout.readline())
        assert set(port_blocks.free_ports(300)).isdisjoint(other_ports)
        assert len(set(other_ports)) == 300
        other.stdin.close()


def test_ports_are_free_and_below_those_of_outgoing_connections():
    ports = port_blocks.free_ports(30)
    assert len(set(ports)) == 30
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(ports) < first


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_given_server_is_used_and_cannot_be_broken(how, monkeypatch):
    with local_etcd() as node:
        if how == "environment":
            monkeypatch.setenv("RINK_TEST_ETCD", node.endpoint + "/")
        given = local_etcd(endpoint=node.endpoint) if how == "argument" else local_etcd()
        with given as same:
            assert same.endpoint == node.endpoint
            assert same.is_running
            assert same.is_healthy
            assert same.pid is None
            assert same.log_path is None
            for verb in (same.kill, same.freeze, same.thaw, same.stop, same.restart):
                with pytest.raises(UsageError, match="was given"):
                    verb()
        assert node.is_healthy


def test_given_address_without_a_server_names_it_in_the_error(monkeypatch):
    monkeypatch.setattr(start, "GIVEN_DEADLINE_S", 0.3)
    port = port_blocks.free_ports(1)[0]
    refused = pytest.raises(EtcdUnavailable, match=rf"(?s)127.0.0.1:{port}.*RINK_TEST_ETCD")
    with refused, local_etcd(endpoint=f"http://127.0.0.1:{port}"):
        pass


def test_binary_on_the_path_wins_over_the_wheel(tmp_path, monkeypatch):
    binary = tmp_path / "etcd"
    binary.write_text("#!/bin/sh\necho it was me\n")
    binary.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EtcdUnavailable, match="it was me"), local_etcd():
        pass


def test_wheel_without_a_path_is_found_and_warns_once(monkeypatch, caplog):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(start, "_has_warned_of_wheel", False)
    assert start.find_etcd() == start.find_etcd()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "never for production" in caplog.text


def test_wheel_s_own_script_on_the_path_is_the_wheel(monkeypatch):
    scripts = Path(sys.executable).parent
    if not (scripts / "etcd").exists():
        pytest.skip("the wheel is not installed beside this Python")
    monkeypatch.setenv("PATH", str(scripts))
    # The script is a Python process that starts etcd, so signals would not reach etcd.
    assert start.find_etcd().parent.name == "etcdbin"


# --------------------------------------------------------------------------- TLS, authentication


@pytest.fixture(scope="module")
def ca():
    return trustme.CA()


@pytest.fixture
def pem(ca, tmp_path):
    files = TlsFiles(tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem", True)
    certificate = ca.issue_cert("127.0.0.1", "localhost")
    ca.cert_pem.write_to_path(str(files.ca))
    certificate.private_key_pem.write_to_path(str(files.key))
    certificate.cert_chain_pems[0].write_to_path(str(files.cert))
    return files


def test_with_tls_only_clients_with_a_certificate_get_in(pem):
    with local_etcd(tls=pem) as node:
        assert node.endpoint.startswith("https://")
        with Client([node.endpoint], ca=str(pem.ca), cert=str(pem.cert), key=str(pem.key)) as etcd:
            etcd.txn(*PUT)
        with Client([node.endpoint], ca=str(pem.ca)) as stranger, pytest.raises(EtcdError):
            stranger.range(b"a", timeout=2)
        with local_etcd(endpoint=node.endpoint, tls=pem) as given:
            assert given.is_healthy


def test_root_password_is_required_after_the_start(tmp_path):
    with local_etcd(root_password="secret", data_dir=tmp_path, **QUICK) as node:
        with Client([node.endpoint], user="root", password="secret") as etcd:
            etcd.txn(*PUT)
        with Client([node.endpoint]) as stranger, pytest.raises(EtcdAuth):
            stranger.range(b"a")
    with local_etcd(root_password="secret", data_dir=tmp_path, **QUICK) as node:
        assert node.is_healthy
    refused = pytest.raises(EtcdAuth, match="another root password")
    with refused, local_etcd(root_password="wrong", data_dir=tmp_path):
        pass


def test_tls_and_a_password_go_together(pem):
    with local_etcd(tls=pem, root_password="secret") as node:
        tls = {"ca": str(pem.ca), "cert": str(pem.cert), "key": str(pem.key)}
        with Client([node.endpoint], user="root", password="secret", **tls) as etcd:
            etcd.txn(*PUT)


# --------------------------------------------------------------------------- a cluster


def test_cluster_survives_a_lost_node_and_takes_it_back():
    with etcd_cluster(3, **QUICK) as cluster, Client(cluster.endpoints) as etcd:
        etcd.txn(*PUT)
        lost = cluster.leader()
        lost.kill()
        cluster.wait_healthy()
        assert cluster.leader() is not lost
        assert etcd.range(b"a").kvs[0].value == b"1"
        lost.start()
        cluster.wait_healthy()
        with Client([lost.endpoint]) as client:
            assert client.range(b"a").kvs[0].value == b"1"


def test_cluster_s_frozen_leader_is_replaced():
    with etcd_cluster(3, **QUICK) as cluster:
        frozen = cluster.leader()
        frozen.freeze()
        cluster.wait_healthy()
        assert cluster.leader() is not frozen
        frozen.thaw()
        cluster.wait_healthy()


def test_cluster_is_restarted_node_by_node_and_keeps_its_data():
    # With quick elections, a stall could make another node leader before the first stop.
    with etcd_cluster(3) as cluster, Client(cluster.endpoints) as client:
        client.txn(*PUT)
        before, leader = [node.pid for node in cluster.nodes], cluster.leader()
        stopped = []
        for node in cluster.nodes:
            node.stop = lambda node=node, stop=node.stop: (stopped.append(node), stop())
        cluster.restart()
        assert not set(before) & {node.pid for node in cluster.nodes}
        assert set(stopped) == set(cluster.nodes)
        assert stopped[-1] is leader
        assert client.range(b"a").kvs[0].value == b"1"


def test_nodes_run_in_their_places():
    hosts = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
    places = tuple(Place(host, ("env", f"PLACED={host}")) for host in hosts)
    with etcd_cluster(3, places=places, **QUICK) as cluster:
        for node, host in zip(cluster.nodes, hosts, strict=True):
            assert node.endpoint.startswith(f"http://{host}:")
            assert f"PLACED={host}" in Path(f"/proc/{node.pid}/environ").read_text()
        cluster.leader().kill()
        with Client(cluster.endpoints) as client:
            client.txn(*PUT, timeout=10.0)


def test_each_node_needs_a_place_or_none():
    with pytest.raises(ConfigError, match="places has 1 Place for 3 nodes"):
        etcd_cluster(3, places=(Place(),)).__enter__()


def test_cluster_without_a_quorum_is_not_healthy():
    with etcd_cluster(3, **QUICK) as cluster:
        cluster.nodes[0].kill()
        cluster.nodes[1].kill()
        wait_until(lambda: not cluster.nodes[2].is_healthy)
        with pytest.raises(EtcdUnavailable, match="became leader"):
            cluster.leader(timeout=3)
        with pytest.raises(EtcdUnavailable, match="not healthy"):
            cluster.wait_healthy(0.2)
        cluster.nodes[0].start()
        cluster.wait_healthy()


def test_cluster_in_a_given_folder_survives(tmp_path):
    with etcd_cluster(3, data_dir=tmp_path, **QUICK) as cluster, Client(cluster.endpoints) as etcd:
        etcd.txn(*PUT)
        endpoints = cluster.endpoints
    with etcd_cluster(3, data_dir=tmp_path, **QUICK) as cluster, Client(cluster.endpoints) as etcd:
        assert cluster.endpoints == endpoints
        assert etcd.range(b"a").kvs[0].value == b"1"

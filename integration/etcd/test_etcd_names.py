"""Test endpoints given by names whose address changes.

The name is looked up again soon. The member runs in a mount namespace with a hosts file of its own,
which the test rewrites.
"""

import subprocess
import time
from urllib.parse import urlsplit

import pytest
from members import Worker

from rink.testing import local_etcd
from rink.testing.history import History

pytestmark = pytest.mark.waits

NAMESPACE = ("unshare", "--map-root-user", "--mount")
BOUND_S = 10.0
BACK_WITHIN_S = 0.5 + 1.0 + 5.0  # the renewal is due, a new connection is made, two busy cores
"""Well below the 25 s that gRPC takes with its defaults; 1 s is usual on a quiet machine."""


class Names:
    """Write a hosts file in which each name has one address."""

    def __init__(self, path):
        self.path = path
        self._addresses = {}
        # The file is bound in the namespace before its process starts.
        mount = 'mount --bind "$0" /etc/hosts && exec "$@"'
        self.command = (*NAMESPACE, "sh", "-c", mount, str(path))

    def set(self, name, address):
        """Give a name this address in the hosts file.

        The file must stay the same inode, since it is bound.
        """
        self._addresses[name] = address
        lines = [f"{address} {name}\n" for name, address in self._addresses.items()]
        self.path.write_text("".join(lines))


@pytest.fixture
def names(tmp_path):
    made = Names(tmp_path / "hosts")
    made.set("localhost", "127.0.0.1")
    done = subprocess.run([*made.command, "true"], check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no mount namespaces here ({done.stderr.strip()})")
    return made


@pytest.fixture
def worker_on(names, prefix):
    """Start a member behind the hosts file; end its process in teardown."""
    workers = []

    def worker_on(endpoints, ttl):
        made = Worker(
            History(),
            "a",
            endpoints,
            prefix,
            roles=["x"],
            session={"ttl": ttl},
            command=names.command,
        )
        workers.append(made)
        made.wait("gained")
        return made

    yield worker_on
    for made in workers:
        made.close()


def port_of(node):
    return urlsplit(node.endpoint).port


def test_client_whose_name_gets_a_new_address_is_back(names, worker_on, wire_to):
    """A client whose name gets a new address is back in time.

    The old address vanishes just before a renewal, so the time of the next renewal shows the
    return.
    """
    with local_etcd(fsync=False) as node:
        port = port_of(node)
        old = wire_to(node, "127.0.0.2", port)
        names.set("etcd.test", "127.0.0.2")
        worker = worker_on(f"http://etcd.test:{port}", ttl=15)
        worker.wait_renewed()
        time.sleep(15 / 6 - 0.5)
        old.cut()
        wire_to(node, "127.0.0.3", port)
        names.set("etcd.test", "127.0.0.3")
        took = worker.wait_renewed()
        print(f"the name has a new address: back after {took:.2f} s")
        assert took < BACK_WITHIN_S
        assert worker.ask("held")["roles"] == ["x"]
        worker.leave()
        assert [event.what for event in worker.history.events] == ["gained", "let go"]


def test_client_of_three_names_that_move_in_turn_loses_nothing(names, worker_on, wire_to, cluster):
    wires = {}
    for number, node in enumerate(cluster.nodes):
        names.set(f"etcd-{number}.test", f"127.0.1.{number + 1}")
        wires[node] = wire_to(node, f"127.0.1.{number + 1}", port_of(node))
    endpoints = [f"http://etcd-{n}.test:{port_of(node)}" for n, node in enumerate(cluster.nodes)]
    worker = worker_on(endpoints, ttl=10)
    for number, node in enumerate(cluster.nodes):
        wires[node].cut()
        wire_to(node, f"127.0.2.{number + 1}", port_of(node))
        names.set(f"etcd-{number}.test", f"127.0.2.{number + 1}")
        print(
            f"name {number} has a new address: renewed after {worker.wait_renewed(BOUND_S):.2f} s"
        )
    assert worker.ask("held")["roles"] == ["x"]
    worker.leave()
    assert [event.what for event in worker.history.events] == ["gained", "let go"]

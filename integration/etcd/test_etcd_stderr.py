"""Test that gRPC prints nothing of its own to stderr."""

import os
import subprocess
import sys

import pytest
from pems import Files

from rink.testing import local_etcd

pytestmark = pytest.mark.waits

STATUS = ("-m", "rink.cli", "status", "orders", "--endpoints")

FORK = """
import os, sys
from rink.etcd.client import Client

with Client([sys.argv[1]], ca=sys.argv[2]) as client:
    client.range(b"k")
    client.watch(b"k", b"", 0, lambda _: None)
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
"""


@pytest.fixture(scope="module")
def https(tmp_path_factory):
    files = Files(tmp_path_factory.mktemp("tls") / "right", "127.0.0.1", "localhost")
    with local_etcd(fsync=False, tls=files.server()) as node:
        yield node.endpoint, str(files.ca)


def stderr(*line):
    env = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    command = [sys.executable, *line]
    ran = subprocess.run(command, check=False, env=env, capture_output=True, text=True, timeout=60)
    lines = ran.stderr.splitlines(keepends=True)
    return "".join(one for one in lines if not one.startswith("rink: no answer yet"))  # busy cores


def test_refused_connection_says_nothing_of_grpc():
    said = stderr(*STATUS, "http://127.0.0.1:1")
    assert said.startswith("rink: no etcd listens at http://127.0.0.1:1")
    assert said.count("\n") == 1


def test_refused_certificate_says_nothing_of_grpc_and_names_ca(https, tmp_path):
    wrong = Files(tmp_path / "wrong", "127.0.0.1", "localhost")
    said = stderr(*STATUS, https[0], "--ca", str(wrong.ca))
    assert said == (
        f"rink: the certificate of {https[0]} was refused: unable to get local issuer certificate "
        "(check --ca, and that the certificate names this host)\n"
    )


def test_http_to_a_tls_server_says_nothing_of_grpc_and_names_ca(https):
    plain = https[0].replace("https", "http")
    assert stderr(*STATUS, plain) == f"rink: {plain} speaks TLS: use https://, with --ca\n"


def test_fork_beside_a_watch_says_nothing_of_grpc(https):
    assert stderr("-c", FORK, *https) == ""

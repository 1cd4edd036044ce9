"""Test `--once-per`: a cron job runs at most once per slot.

Several hosts try each slot.
"""

from __future__ import annotations

import collections
import contextlib
import re
import signal
import time

import pytest
from run_support import SHORT_TTL, wait_for

from rink.core.keys import SlotKeys
from rink.etcd.api import Put
from rink.etcd.client import Client

pytestmark = pytest.mark.waits

SLOTS = 10
"""`figures.py` has 50."""
OFFSETS = (-2, 0, 2)
"""Minutes by which the hosts' clocks are wrong."""


def job(path):
    """Return a command that writes its slot's name, and takes no time."""
    return ["sh", "-c", 'echo "$1" >> "$2"', "sh", "{slot}", str(path)]


@pytest.mark.timeout(240)
def test_three_hosts_with_wrong_clocks_run_each_slot_once(runs, tmp_path):
    """A lock alone would run a short job on each host, one after the other."""
    path = tmp_path / "ran"
    path.touch()

    def slot_at(minute):
        return f"2026-11-29T{minute // 60:02d}:{minute % 60:02d}Z"

    for minute in range(2, SLOTS + 6):  # of the right clock
        started = []
        for offset in OFFSETS:
            slot = slot_at(minute + offset)
            command = [word.replace("{slot}", slot) for word in job(path)]
            started.append(runs("--once-per", slot, "--", *command))
        assert [run.ends() for run in started] == [0, 0, 0]
    ran = collections.Counter(path.read_text().split())
    by_all = [slot_at(minute) for minute in range(4, SLOTS + 4)]  # those that all hosts came to
    assert len(by_all) == SLOTS
    assert [slot for slot in by_all if ran[slot] != 1] == []
    assert set(ran.values()) == {1}


def test_five_hosts_at_once_run_a_slot_once(runs, tmp_path):
    path = tmp_path / "ran"
    path.touch()
    command = [word.replace("{slot}", "x") for word in job(path)]
    started = [runs("--once-per", "x", "--", *command) for _ in range(5)]
    assert [run.ends() for run in started] == [0] * 5
    assert path.read_text() == "x\n"


def test_slot_is_this_minute_if_none_is_given(runs):
    before = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime())
    run = runs("--once-per", "--", "true")
    assert run.ends() == 0
    after = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime())
    (slot,) = re.findall(r"slot '([^']*)' of .* is started", run.log)
    assert slot in (before, after)


def test_waiting_host_does_not_wait_for_the_end_of_the_job(runs, beats):
    both = [runs("--once-per", "s", "--", *beats.command()) for _ in range(2)]
    beats.wait()
    run = wait_for(lambda: next((one for one in both if "is started" in one.log), None))
    (other,) = (one for one in both if one is not run)
    assert other.ends() == 0
    assert "is not run: it was started by" in other.log
    assert run.process.poll() is None


@pytest.mark.parametrize("is_retried", [False, True])
def test_run_killed_in_the_job_is_retried_if_asked(runs, beats, is_retried):
    first = runs("--once-per", "s", "--", *beats.command(), ttl=SHORT_TTL)
    token = beats.wait().token
    first.send(signal.SIGKILL)
    retry = ["--retry-if-unfinished"] if is_retried else []
    second = runs("--once-per", "s", *retry, "--", *beats.command())
    if not is_retried:
        assert second.ends() == 0
        assert "was started by" in second.log
        assert {beat.token for beat in beats.all()} == {token}
        return
    beats.wait(token_above=token)
    wait_for(lambda: "slot 's' of role 'r' of group 'g' is started" in second.log)


def test_done_is_written_in_spite_of_a_signal(runs, tmp_path, wire_to, etcd_node):
    """The job has succeeded.

    Otherwise `--retry-if-unfinished` would run it again.
    """
    wire = wire_to(etcd_node)
    until = f"until [ -e {tmp_path}/go ]; do sleep 0.01; done; exit 4"
    line = ["--once-per", "s", "--", "sh", "-c", f"echo; {until}"]
    run = runs(*line, endpoint=wire.endpoint, ttl=60)
    wait_for(lambda: run.output)
    wire.cut()
    (tmp_path / "go").touch()
    run.wait_log("slot 's' waits for an answer of etcd")
    run.send(signal.SIGTERM)
    run.wait_log("SIGTERM: `rink run` ends with code 4, and cuts its leave short")
    wire.heal()
    assert run.ends() == 4
    again = runs("--once-per", "s", "--retry-if-unfinished", "--", "sh", "-c", "exit 5")
    assert again.ends() == 0
    assert "with code 4" in again.log


def test_slot_that_cannot_be_read_ends_run_and_it_leaves(runs, beats, etcd_url, prefix):
    """Otherwise the next member would wait for a lease to end."""
    runs("--", *beats.command())
    beats.wait()
    waiting = runs("--once-per", "s", "--", *beats.command())
    waiting.wait_log("waits for role")
    key = SlotKeys.of(prefix, "g", "r").slot("s")
    with contextlib.closing(Client([etcd_url])) as etcd:
        etcd.txn((), (Put(key, b"?"),))
    assert waiting.ends() == 125
    assert "cannot be read" in waiting.log
    assert "left group 'g'" in waiting.log


def test_code_of_the_job_is_kept_and_it_is_not_run_again(runs):
    assert runs("--once-per", "s", "--", "sh", "-c", "exit 4").ends() == 4
    again = runs("--once-per", "s", "--retry-if-unfinished", "--", "sh", "-c", "exit 5")
    assert again.ends() == 0
    assert "with code 4" in again.log


def test_job_that_cannot_be_started_is_unfinished(runs, tmp_path):
    """The job has not run, so another host may run it with a retry."""
    plain = tmp_path / "plain"
    plain.write_text("no program")
    assert runs("--once-per", "s", "--", str(plain)).ends() == 126
    assert runs("--once-per", "s", "--", "true").ends() == 0
    again = runs("--once-per", "s", "--retry-if-unfinished", "--", "sh", "-c", "exit 5")
    assert again.ends() == 5

"""Test the commands of streams on a real Redis and a real etcd.

They are `rink worker`, `send`, `sendmany` and `streams`. Workers, pipe readers and the commands in
`test_every_command_…` are processes. All others run in this process: a command takes a second to
start on a busy machine, and is repeated often.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import textwrap
import urllib.request

import pytest
from cli_lines import DEADLINE_S, wait_for
from cli_shop import PARTITIONS, RINK, SHOP, Running, working

from rink.testing import local_redis


def test_send_then_work_then_nothing_lags(shop):
    told = shop.ok("send", "shop:app", "orders", '{"order_id": 1, "amount": 3}')
    assert re.fullmatch(r"\d+-0 in partition \d of orders\n", told)
    path = shop.folder / "orders.jsonl"
    lines = [json.dumps({"order_id": n, "customer": f"c{n % 20}"}) for n in range(5000)]
    path.write_text("\n".join(lines))
    counts = json.loads(shop.ok("sendmany", "shop:app", "orders", "--file", str(path), "--json"))
    assert (counts["lines"], counts["sent"], counts["error"]) == (5000, 5000, None)
    before = shop.json("lag")["lag"]
    assert {one["offset"] for one in before} == {""}
    with working(shop):
        found = shop.until_done("bill")
        assert sum(one["processed"] for one in found.values()) == 5001
        shop.until_done("ship")
        assert all(one["owned"] for one in shop.json("lag")["lag"])


def test_sendmany_from_a_pipe_stops_at_the_first_bad_line(shop):
    lines = ['{"order_id": 1}', '{"order_id": "2"}', '{"order_id": 3}']
    result = shop.process("sendmany", "shop:app", "orders", "--file", "-", given="\n".join(lines))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("rink: line 2 of -: ")
    assert "is no int @ $.order_id" in result.stderr
    assert result.stderr.endswith("Records sent before it: 1\n")
    number = next(n for n in range(PARTITIONS) if shop.redis.exists(shop.names(n).stream))
    assert shop.redis.xlen(shop.names(number).stream) == 1


@pytest.fixture
def hears_interrupts():
    """Make SIGINT work in processes that a shell starts in the background.

    Otherwise these processes and their children ignore it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_interrupts")
def test_records_of_a_pipe_are_sent_before_its_end_and_ctrl_c_works(shop):
    with subprocess.Popen(
        [*RINK, "sendmany", "shop:app", "orders", "--file", "-"],
        cwd=shop.folder,
        env={**os.environ, **shop.env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as sending:
        sending.stdin.write(b'{"order_id": 1}\n{"order_id"')
        sending.stdin.flush()
        wait_for(lambda: any(shop.redis.xlen(shop.names(n).stream) for n in range(PARTITIONS)))
        sending.send_signal(signal.SIGINT)
        assert sending.wait(DEADLINE_S) == 1
        assert b"Traceback" not in sending.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_has_a_worker_leave_in_order(shop, number):
    shop.send(*((n, 1000) for n in range(3)))
    with Running(shop, "--name", "w1") as worker:
        (busy,) = [n for n in range(PARTITIONS) if shop.redis.xlen(shop.names(n).stream)]
        wait_for(lambda: shop.at("ship", busy).get("open", "0") != "0")
        assert worker.end(number) == 0
    log = "".join(worker.read)  # all of it: the reader has ended
    assert f"{number.name}: worker w1 is leaving; a second signal ends it at once" in log
    assert log.endswith("worker w1 has left\n")
    for processor in ("bill", "ship"):
        at = [shop.at(processor, n) for n in range(PARTITIONS)]
        assert [one.get("open", "0") for one in at] == ["0"] * PARTITIONS
    found = shop.lag("ship")[busy]
    assert found["processed"] + found["lag"] == 3
    assert found["unclean"] == 0


def test_worker_that_leaves_processes_until_another_one_joins(shop):
    shop.send(*((n, 1000) for n in range(3)))
    with Running(shop, "--name", "w1", "--handover-wait", "60") as old:
        shop.until_done("bill")
        old.process.send_signal(signal.SIGTERM)
        old.until_said("worker w1 is leaving; waits up to 60 s for a successor")
        shop.send(*((n, 1000) for n in range(3, 9)))
        done = shop.until_done("bill")
        assert sum(one["processed"] for one in done.values()) == 9
        with Running(shop, "--name", "w2") as new:
            assert old.process.wait(DEADLINE_S) == 0
            shop.send(*((n, 1000) for n in range(9, 12)))
            done = shop.until_done("bill")
            assert sum(one["processed"] for one in done.values()) == 12
            assert all(one["unclean"] == 0 for one in done.values())
            assert new.end(signal.SIGTERM) == 0


def test_second_signal_ends_the_wait_for_a_successor(shop):
    with Running(shop, "--name", "w1", "--handover-wait", "60") as worker:
        shop.send((1, 1000))
        shop.until_done("bill")
        worker.process.send_signal(signal.SIGTERM)
        worker.until_said("waits up to 60 s for a successor")
        assert worker.end(signal.SIGTERM) == 0


def test_second_signal_ends_a_worker_at_once(shop):
    (shop.folder / "shop.py").write_text(
        textwrap.dedent(SHOP).replace("time.sleep(0.2 if", "time.sleep(60 if")
    )
    shop.send((1, 1000))
    with Running(shop, "--processors", "ship") as worker:
        wait_for(lambda: any(shop.at("ship", n).get("open", "0") != "0" for n in range(PARTITIONS)))
        worker.process.send_signal(signal.SIGTERM)
        worker.until_said("worker .* is leaving")
        assert worker.end(signal.SIGTERM) == -signal.SIGTERM


def test_processor_that_halts_ends_its_worker_with_one_line(shop):
    (shop.folder / "shop.py").write_text(
        textwrap.dedent(SHOP).replace('on_error="quarantine"', 'on_error="halt"')
    )
    shop.send((1, 2000))
    result = shop.process("worker", "shop:app", "--log-level", "critical")
    assert result.returncode == 1
    assert re.fullmatch(r"rink: event \d+-0 of 'orders/\d', .*too heavy.*\n", result.stderr)


def test_metrics_of_a_worker(shop):
    shop.send((1, 3), (2, -3))
    with working(shop, "--metrics-port", "0", "--processors", "bill") as worker:
        url = worker.until_said(r"metrics are at (\S+)")[1]
        shop.until_done("bill")

        def metrics():
            with urllib.request.urlopen(url) as answer:
                return answer.read().decode()

        def total(name):
            found = re.findall(rf"^rink_streams_{name}{{.*}} (\S+)$", metrics(), re.MULTILINE)
            return sum(float(one) for one in found) if found else None

        # Redis has a take or a commit a moment before its worker counts it.
        names = ("processed_total", "dead_total", "owned", "handover_seconds_count")
        wait_for(lambda: [total(one) for one in names] == [1, 1, PARTITIONS, PARTITIONS])
        assert total("retried_total") >= 3
        assert total("commit_seconds_count") >= 1
        wait_for(lambda: total("lag") == 0)
        assert "process_cpu_seconds_total" in metrics()


def test_dead_letters_are_listed_shown_and_requeued(shop):
    shop.send((1, 3), (2, -3), (3, -4))
    with working(shop):
        shop.until_done("bill")
        found = shop.json("dead")
        assert found["total"] == 2
        first, second = found["letters"]
        assert (first["processor"], first["attempts"]) == ("bill", 3)
        assert first["error"] == "ValueError: amount -3 is negative"
        assert json.loads(first["record"])["order_id"] == 2
        shown = shop.ok("streams", "dead", "shop:app", first["id"])
        assert 'raise ValueError(f"amount {order.amount} is negative")' in shown
        assert shop.json("dead", "--last", "1")["letters"] == [second]
        (again,) = shop.json("requeue", first["id"])["requeued"]
        assert again["letter"] == first["id"]
        # It fails once more, and is a dead letter of another id.
        wait_for(lambda: shop.json("dead")["total"] == 2)
        events = [one["event"] for one in shop.json("dead")["letters"]]
        assert events == [second["event"], again["event"]]
        gone = shop.refused("streams", "requeue", "shop:app", first["id"])
        assert "there is no dead letter" in gone
    both = shop.json("requeue", "--all")["requeued"]
    assert [one["letter"] for one in both] == [
        second["id"], *(one["letter"] for one in both[1:]),
    ]  # fmt: skip
    assert len(both) == 2
    assert shop.json("dead")["total"] == 0


def test_quarantined_partition_is_shown_released_and_its_event_skipped(shop):
    shop.send((1, 3), (2, 2000), (3, 5))
    with working(shop):
        (quarantined,) = wait_for(
            lambda: [one for one in shop.lag("ship").values() if one["quarantined"]]
        )
        assert (quarantined["lag"], quarantined["holds_back"], quarantined["owned"]) == (
            2,
            True,
            False,
        )
        assert "too heavy" in quarantined["quarantined"]
        assert "too heavy" in shop.ok("streams", "lag", "shop:app")
        number = str(quarantined["partition"])
        (owners,) = shop.json("owners", "-p", "ship", "-n", number)["owners"]
        assert owners["partitions"][0]["quarantined"] == quarantined["quarantined"]
        (released,) = shop.json("unquarantine", "-p", "ship")["unquarantined"]
        assert (released["reason"], released["skipped"]) == (quarantined["quarantined"], "")
        # What it was quarantined for is still there, so it is quarantined again.
        wait_for(lambda: shop.lag("ship")[quarantined["partition"]]["quarantined"])
        (released,) = shop.json("unquarantine", "--skip")["unquarantined"]
        assert released["skipped"] == released["offset"] != ""
        assert shop.until_done("ship")[quarantined["partition"]]["processed"] == 2
        (letter,) = shop.json("dead", "-p", "ship")["letters"]
        assert letter["error"].startswith("Skipped by an operator: event ")
        assert json.loads(letter["record"])["order_id"] == 2
        assert shop.json("unquarantine")["unquarantined"] == []


def test_reset_is_heard_by_an_owner_that_has_nothing_to_do(shop):
    shop.send((1, 3), (2, 4))
    with working(shop):
        (mine,) = [n for n, one in shop.until_done("bill").items() if one["processed"]]
        moved = shop.json("reset", "bill", "--to", "earliest", "--yes")["moved"]
        assert {one["after"] for one in moved} == {"0-0"}
        wait_for(lambda: shop.lag("bill")[mine]["processed"] == 4)
        assert shop.until_done("bill")[mine]["dead"] == 0
        last = shop.lag("bill")[mine]["offset"]
        time_ms = last.partition("-")[0]
        for to, after in [(last, last), ("latest", last)]:
            (one,) = shop.json("reset", "bill", "--to", to, "-n", str(mine), "--yes")["moved"]
            assert (one["before"], one["after"]) == (last, after)
        (one,) = shop.json(
            "reset", "bill", "--to", str(int(time_ms) + 1), "-n", str(mine), "--yes"
        )["moved"]
        assert one["after"] == last
    late = shop.refused("streams", "reset", "shop:app", "bill", "--to", "99999999999999-0", "--yes")
    assert "no offset was moved" in late
    assert "is no offset" in shop.refused(
        "streams", "reset", "shop:app", "bill", "--to", "x", "--yes"
    )


def test_paused_processor_gives_nothing_until_it_is_resumed(shop):
    shop.send((1, 3))
    with working(shop):
        (mine,) = [n for n, one in shop.until_done("bill").items() if one["processed"]]
        shown = shop.ok("streams", "pause", "shop:app", "bill")
        assert shown.count("bill") == PARTITIONS
        assert "nothing to pause" in shop.ok("streams", "pause", "shop:app", "bill")
        wait_for(lambda: "owned, paused" in shop.ok("streams", "lag", "shop:app", "-p", "bill"))
        wait_for(lambda: "paused" in shop.ok("streams", "owners", "shop:app", "-p", "bill"))
    with working(shop):
        shop.send((2, 3))
        wait_for(lambda: shop.lag("ship")[mine]["processed"] == 2)
        assert shop.lag("bill")[mine]["processed"] == 1
        (resumed,) = shop.json("resume", "bill", "-n", str(mine))["resumed"]
        assert (resumed["partition"], resumed["lag"]) == (mine, 1)
        wait_for(lambda: shop.lag("bill")[mine]["processed"] == 2)


def test_retired_processor_holds_trimming_back_until_it_is_forgotten(shop):
    shop.send(*((n, 3) for n in range(20)))
    with working(shop):
        found = shop.until_done("bill")
        shop.until_done("ship")
        (mine,) = [n for n, one in found.items() if one["processed"]]
        shop.redis.hset(shop.names(mine).offsets, "old", "0-0")
        (old,) = shop.lag("old").values()
        assert (old["declared"], old["lag"], old["holds_back"]) == (False, 20, True)
        assert "not in this app  old" in shop.ok("streams", "lag", "shop:app")
        owned = shop.refused("streams", "forget-group", "shop:app", "bill", "--yes")
        assert "processor 'bill' is at work in orders/0" in owned
        (gone,) = shop.json("forget-group", "old")["forgotten"]
        assert (gone["waited"], gone["trimmed"], gone["partition"]) == (20, 19, mine)
        assert "declares no processor 'old'" in shop.refused(
            "streams", "forget-group", "shop:app", "old"
        )
    told = shop.ok("streams", "forget-group", "shop:app", "bill", "--yes")
    assert "this app still has bill" in told
    assert shop.lag("bill")[mine]["offset"] == ""


def test_forget_by_force_quarantines_an_owner_until_unquarantine(shop):
    shop.send((1, 3))
    with working(shop):
        (mine,) = [n for n, one in shop.until_done("bill").items() if one["processed"]]
        shop.json("forget-group", "bill", "--force", "--yes")
        shop.send((2, 3))
        wait_for(lambda: shop.lag("bill")[mine]["quarantined"])
        assert "rolled back" in shop.lag("bill")[mine]["quarantined"]
        (released,) = shop.json("unquarantine")["unquarantined"]
        assert released["partition"] == mine
        shop.send((3, 3))
        wait_for(lambda: shop.lag("bill")[mine]["processed"] == 3)  # from where it starts
    assert shop.lag("ship")[mine]["processed"] == 3


def test_two_workers_and_who_stands_by(shop):
    with working(shop, "--name", "w1"), working(shop, "--name", "w2", "--processors", "bill"):

        def owners():
            (found,) = shop.json("owners", "-p", "bill")["owners"]
            both = len({one["owner"] for one in found["partitions"]}) == 2
            return found if both and found["settled"] else None

        found = wait_for(owners)
        assert sorted(found["workers"]) == ["w1", "w2"]
        for one in found["partitions"]:
            assert {one["owner"], one["standby"]} == {"w1", "w2"}
        assert "shop/bill" in shop.ok("streams", "owners", "shop:app")


EVERY = [
    ("worker",),
    ("send", "orders", '{"order_id": 1}'),
    ("streams", "lag"),
    ("streams", "owners"),
    ("streams", "dead"),
    ("streams", "requeue", "--all"),
    ("streams", "unquarantine"),
    ("streams", "discard", "--all", "--yes"),
    ("streams", "forget-group", "bill", "--yes"),
    ("streams", "reset", "bill", "--to", "latest", "--yes"),
]


def named(line, *more):
    """Return a command line with the app in its place, without a log."""
    words = 2 if line[0] == "streams" else 1
    quiet = ["--log-level", "error"] if line[0] == "worker" else []
    return [*line[:words], "shop:app", *line[words:], *quiet, *more]


def test_every_command_is_a_process_that_ends_with_status_0(shop):
    shop.send((1, 3))
    with working(shop):
        shop.until_done("bill")
    for line in EVERY[1:]:
        result = shop.process(*named(line))
        assert (result.returncode, result.stderr) == (0, ""), result
        assert result.stdout


@pytest.mark.parametrize("line", EVERY, ids=lambda line: " ".join(line[:2]))
def test_no_redis(shop, line):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        port = nobody.getsockname()[1]
        soon = ["--timeout", "0.5"] if line[0] == "send" else []
        said = shop.refused(*named(line, *soon), SHOP_REDIS=f"redis://127.0.0.1:{port}")
    assert f"Redis at 127.0.0.1:{port}" in said
    assert "cannot be reached" in said


@pytest.fixture(scope="module")
def locked_redis():
    """Run a Redis with a password."""
    with local_redis(password="open sesame") as node:
        yield node


@pytest.mark.parametrize("line", EVERY, ids=lambda line: " ".join(line[:2]))
def test_wrong_password(shop, locked_redis, line):
    url = f"redis://:sesame@{locked_redis.host}:{locked_redis.port}"
    said = shop.refused(*named(line), SHOP_REDIS=url)
    assert "check user and password" in said
    assert "sesame" not in said


@pytest.mark.parametrize("line", EVERY, ids=lambda line: " ".join(line[:2]))
def test_another_number_of_partitions(shop, line):
    shop.send((1, 3))
    said = shop.refused(*named(line), COUNT="8")
    assert "stream 'orders' has partition_count=4 in Redis" in said
    assert "partition_count=8" in said


def test_looking_writes_nothing(shop):
    for command in ("lag", "owners", "dead", "unquarantine"):
        shop.json(command)
    assert shop.redis.keys() == []


@pytest.mark.waits
def test_no_etcd(shop):
    said = shop.refused("streams", "owners", "shop:app", RINK_ETCD="http://127.0.0.1:1")
    assert "no etcd listens at http://127.0.0.1:1" in said
    said = shop.refused(*named(("worker",)), RINK_ETCD="http://127.0.0.1:1")
    assert "etcd" in said

"""Test `rink send` and `rink sendmany` on a stream that notes records."""

from __future__ import annotations

import json
import re

import pytest

from rink.cli import sending
from rink.streams import PartitionFull, Stream
from rink.streams.app_connections import Connections


@pytest.fixture
def sent(monkeypatch):
    """Return what was sent, in order.

    The stream has no room from `sent.full_at` on.
    """

    class Sent(list):
        full_at = 10_000

    sent = Sent()

    async def send(stream, record, *, timeout):
        sent.append((record.order_id, timeout))
        return "17-0"

    async def send_many(stream, records, *, timeout):
        for record in records:
            if len(sent) >= sent.full_at:
                raise PartitionFull("partition 2 was full for 30 s")
            sent.append(record.order_id)
        return len(records)

    async def opened(app):
        return None

    monkeypatch.setattr(Connections, "open", opened)
    monkeypatch.setattr(Stream, "send", send)
    monkeypatch.setattr(Stream, "send_many", send_many)
    return sent


@pytest.fixture
def orders(tmp_path):
    """Write a file of lines, and return its path."""

    def orders(*lines):
        path = tmp_path / "orders.jsonl"
        path.write_text("".join(f"{line}\n" for line in lines))
        return str(path)

    return orders


def order(number, **more):
    return json.dumps({"order_id": number, **more})


def test_one_record_is_sent_and_its_id_told(run, shop, sent):
    result = run("send", shop, "orders", order(7, customer="c3"), "--timeout", "2")
    assert (result.exit_code, sent) == (0, [(7, 2.0)])
    assert result.stdout == "17-0 in partition 3 of orders\n"


def test_one_record_as_json(run_json, shop, sent):
    assert run_json("send", shop, "orders", order(7, customer="c3")) == {
        "stream": "orders",
        "partition": 3,
        "id": "17-0",
    }


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ('{"order_id": "7"}', "'7' is no int @ $.order_id"),
        ('{"customer": "x"}', "order_id"),
        ("{", "is not JSON"),
        ('{"order_id": 7, "customer": ""}', "has no partition key: partition_by='customer'"),
    ],
)
def test_record_that_does_not_match_is_not_sent_and_its_field_named(run, shop, sent, record, said):
    result = run("send", shop, "orders", record)
    assert (result.exit_code, sent) == (1, [])
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_stream_that_the_app_does_not_have(run, shop, sent):
    result = run("send", shop, "order", order(7))
    assert result.exit_code == 1
    assert result.stderr == "rink: app 'shop' has no stream 'order'; it has ['orders']\n"


def test_file_is_sent_in_order_and_empty_lines_are_skipped(run, shop, sent, orders):
    result = run("sendmany", shop, "orders", "--file", orders(order(1), "", order(2), " "))
    assert (result.exit_code, sent) == (0, [1, 2])
    assert re.match(r"2 records sent to orders in \d+\.\d s \(\d+ a second\)\n", result.stdout)


def test_counts_as_json(run_json, shop, sent, orders):
    path = orders(order(1), "", order(2))
    assert run_json("sendmany", shop, "orders", "--file", path) == {
        "stream": "orders",
        "file": path,
        "lines": 3,
        "sent": 2,
        "unsure": 0,
        "seconds": pytest.approx(0, abs=10),
        "line": None,
        "error": None,
    }


@pytest.mark.parametrize("size", [1, 7, 16, 1 << 18])
def test_lines_are_whole_whatever_is_read_at_once(run, shop, sent, orders, monkeypatch, size):
    monkeypatch.setattr(sending, "_CHUNK_BYTES", size)
    numbers = list(range(20))
    run("sendmany", shop, "orders", "--file", orders(*(order(n) for n in numbers)))
    assert sent == numbers


def test_last_line_need_not_end(run, shop, sent, tmp_path):
    path = tmp_path / "orders.jsonl"
    path.write_text(f"{order(1)}\n{order(2)}")
    run("sendmany", shop, "orders", "--file", str(path))
    assert sent == [1, 2]


def test_standard_input_is_a_file_too(shop, sent):
    from click.testing import CliRunner

    from rink.cli.commands import commands

    line = ["sendmany", shop, "orders", "--file", "-", "--json"]
    result = CliRunner().invoke(commands, line, input=f"{order(1)}\n{order(2)}\n")
    assert (result.exit_code, sent) == (0, [1, 2])
    assert json.loads(result.stdout)["file"] == "-"


@pytest.mark.parametrize("size", [1, 1 << 18])
@pytest.mark.parametrize("bad", ['{"order_id": 1.5}', '{"order_id": 1, "customer": ""}', "x"])
def test_first_bad_line_is_named_and_those_before_it_are_sent(
    run, shop, sent, orders, monkeypatch, size, bad
):
    monkeypatch.setattr(sending, "_CHUNK_BYTES", size)
    path = orders(order(1), "", order(2), bad, order(3))
    result = run("sendmany", shop, "orders", "--file", path, "--json")
    assert (result.exit_code, sent) == (1, [1, 2])
    assert result.stderr.startswith(f"rink: line 4 of {path}: ")
    assert result.stderr.endswith(". Records sent before it: 2\n")
    told = json.loads(result.stdout)
    assert (told["line"], told["sent"], told["lines"]) == (4, 2, 4)
    assert told["error"] in result.stderr


def test_where_there_is_no_room_it_says_what_was_sent_and_what_may_be(
    run, shop, sent, orders, monkeypatch
):
    monkeypatch.setattr(sending, "_CHUNK_BYTES", 40)
    sent.full_at = 6
    result = run("sendmany", shop, "orders", "--file", orders(*(order(n) for n in range(9))))
    assert (result.exit_code, sent) == (1, [0, 1, 2, 3, 4, 5])
    assert result.stderr.endswith(": the first 5, and maybe some of the next 2\n")


def test_file_that_is_not_there_is_wrong_usage(run, shop, sent):
    result = run("sendmany", shop, "orders", "--file", "nowhere.jsonl")
    assert result.exit_code == 2
    assert "'nowhere.jsonl': No such file or directory" in result.stderr

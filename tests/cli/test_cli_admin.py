"""Test the requests and the output of `rink streams`, beside a stand-in."""

from __future__ import annotations

import json

import attrs
import pytest

from rink.errors import StateError
from rink.streams import admin
from rink.streams.admin import (
    DeadLetterRow,
    DeadLetters,
    Discarded,
    Forgotten,
    Lag,
    Moved,
    Owners,
    PartitionOwner,
    Paused,
    Requeued,
    Resumed,
    Unquarantined,
)

WHERE = {"processor": "bill", "stream": "orders", "partition": 3}


def lag_of(processor="bill", partition=3, **changed):
    given = {
        "declared": True,
        "lag": 0,
        "offset": "1700000000000-0",
        "oldest": "",
        "kept": 12,
        "bytes": 1200,
        "since": "2023-11-14T00:00:00.000+00:00",
        "keep": "",
        "held": 12,
        "size": 50000,
        "holds_back": False,
        "owned": True,
        "quarantined": "",
        "paused": False,
        "processed": 100,
        "dead": 0,
        "lost": 0,
        "unclean": 0,
    }
    return Lag(processor=processor, stream="orders", partition=partition, **(given | changed))


def letter_of(**changed):
    given = {
        "id": "1700000009000-0",
        "event": "1700000000000-0",
        "given_up": "2023-11-14T22:13:29.000+00:00",
        "sent": "2023-11-14T22:13:20.000+00:00",
        "error": "ValueError: thirteen",
        "attempts": 3,
        "record": '{"order_id":13}',
        "trace": "Traceback (most recent call last):\n  File x\nValueError: thirteen\n",
    }
    return DeadLetterRow(**WHERE, **(given | changed))


@pytest.fixture
def answers(monkeypatch):
    """Set the answer of an `admin` function, and return the function's calls."""

    def answers(name, answer):
        asked = []

        async def function(app, *given, **named):
            asked.append((*given, named))
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(admin, name, function)
        return asked

    return answers


@pytest.fixture
def lines(run):
    """Run a command, and return its lines with squeezed blanks."""

    def lines(*line):
        result = run(*line)
        assert (result.exit_code, result.stderr) == (0, ""), result.output
        return [" ".join(one.split()) for one in result.stdout.splitlines()]

    return lines


ALL = {"processor": None, "stream": None, "partition": None}


@pytest.mark.parametrize(
    ("options", "chosen"),
    [
        ((), {}),
        (("--processor", "bill"), {"processor": "bill"}),
        (("-p", "bill", "-s", "orders", "-n", "3"), WHERE),
        (("--stream", "orders", "--partition", "0"), {"stream": "orders", "partition": 0}),
    ],
)
@pytest.mark.parametrize("command", ["lag", "owners", "unquarantine", "dead"])
def test_what_is_chosen_is_asked_for(run, shop, answers, command, options, chosen):
    answer = DeadLetters(0, ()) if command == "dead" else ()
    asked = answers({"dead": "dead_letters"}.get(command, command), answer)
    assert run("streams", command, shop, *options).exit_code == 0
    ((named,),) = asked
    assert {key: named[key] for key in ALL} == ALL | chosen


def test_errors_are_one_line(run, shop, answers):
    answers("lag", StateError("stream 'orders' has partition_count=8 in Redis"))
    result = run("streams", "lag", shop)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "rink: stream 'orders' has partition_count=8 in Redis\n"


# ── lag ──────────────────────────────────────────────────────────────────────────────────────────


def test_lag_is_a_line_for_each_partition(lines, shop, answers):
    oldest = "2023-11-14T22:13:20.000+00:00"
    answers("lag", (lag_of(partition=0), lag_of(lag=7, oldest=oldest, holds_back=True, dead=2)))
    head, _, first, second = lines("streams", "lag", shop)
    assert head == "processor partition lag oldest held of processed dead state"
    assert first == "bill orders/0 0 - 12 50000 100 0 owned"
    assert second == (
        "bill orders/3 7 2023-11-14 22:13:20Z 12 50000 100 2 owned, holds trimming back"
    )


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (12_345_678, "12.3 MB"),
        (999_600_000, "1.00 GB"),
        (2 * 10**15, "2000 TB"),
    ],
)
def test_lag_shows_what_is_kept_beside_what_is_not_processed(lines, shop, answers, size, shown):
    answers("lag", (lag_of(lag=3, kept=90_000, bytes=size, held=3, keep="7 d"), lag_of(size=0)))
    head, _, first, second = lines("streams", "lag", shop)
    assert (
        head == "processor partition lag oldest held of kept bytes since keep processed dead state"
    )
    since = "2023-11-14 00:00:00Z"
    assert first == f"bill orders/3 3 - 3 50000 90000 {shown} {since} 7 d 100 0 owned"
    assert second == "bill orders/3 0 - 12 - 100 0 owned"


@pytest.mark.parametrize(
    ("changed", "state"),
    [
        ({"owned": False}, "no owner"),
        ({"owned": False, "offset": ""}, "never started"),
        ({"declared": False, "owned": False}, "not in this app"),
        ({"declared": False, "holds_back": True}, "not in this app, holds trimming back"),
        (
            {"processor": "spark/totals", "declared": False, "holds_back": True},
            "query of Spark, holds trimming back",
        ),
        ({"processor": "spark/totals"}, "owned"),
        ({"quarantined": "event 17-0: thirteen", "owned": False}, "quarantined"),
    ],
)
def test_lag_shows_what_state_a_partition_is_in(lines, shop, answers, changed, state):
    answers("lag", (lag_of(**changed),))
    assert lines("streams", "lag", shop)[2].endswith(f" 0 {state}")


def test_below_the_lag_stands_what_needs_somebody(lines, shop, answers):
    answers(
        "lag",
        (
            lag_of(quarantined="event 17-0: thirteen", owned=False),
            lag_of(partition=1, lost=5),
            lag_of("old", declared=False),
            lag_of("old", 4, declared=False),
            lag_of("spark/totals", declared=False),
        ),
    )
    assert lines("streams", "lag", shop)[8:] == [
        "quarantined bill orders/3: event 17-0: thirteen",
        "lost bill orders/1: 5 events",
        (
            "not in this app old: trimming waits for this processor. If it was retired, "
            "run rink streams forget-group"
        ),
    ]


def test_lag_of_dead_letters_has_no_bound(lines, shop, answers):
    answers("lag", (lag_of(size=0),))
    assert lines("streams", "lag", shop)[2] == "bill orders/3 0 - 12 - 100 0 owned"


def test_lag_as_json_has_every_key(run_json, shop, answers):
    answers("lag", (lag_of(),))
    (one,) = run_json("streams", "lag", shop)["lag"]
    assert one == attrs.asdict(lag_of())
    assert set(one) == {field.name for field in attrs.fields(Lag)}


def test_names_from_redis_cannot_move_the_cursor(run, shop, answers):
    answers("lag", (lag_of("\x1b[2Jbill", declared=False, quarantined="\x1b]0;x"),))
    assert "\x1b" not in run("streams", "lag", shop).stdout


def test_nothing_found_is_said(lines, shop, answers):
    answers("lag", ())
    answers("owners", ())
    answers("unquarantine", ())
    answers("requeue", ())
    answers("forget_group", ())
    answers("reset", ())
    answers("dead_letters", DeadLetters(0, ()))
    assert lines("streams", "lag", shop)[0].startswith("no processors")
    assert lines("streams", "owners", shop)[0].startswith("no processors")
    assert lines("streams", "unquarantine", shop) == ["no chosen partition is quarantined"]
    assert lines("streams", "requeue", shop, "--all") == ["no dead letters"]
    assert lines("streams", "dead", shop) == ["no dead letters"]
    assert lines("streams", "forget-group", shop, "old")[0].startswith("nothing to forget")
    assert lines("streams", "reset", shop, "bill", "--to", "latest", "--yes")[0].startswith("no ")


# ── owners ───────────────────────────────────────────────────────────────────────────────────────


def owners_of(*partitions, **changed):
    given = {
        "processor": "bill",
        "stream": "orders",
        "declared": True,
        "group": "shop/bill",
        "version": 4,
        "settled": True,
        "workers": ("w1", "w2", "w3"),
    }
    return Owners(**(given | changed), partitions=partitions)


def owner_of(partition, **changed):
    given = {
        "owner": "w1",
        "standby": "w3",
        "draining": (),
        "token": 7,
        "is_open": True,
        "quarantined": "",
        "paused": False,
    }
    return PartitionOwner(partition=partition, **(given | changed))


def test_owners_and_who_stands_by(lines, shop, answers):
    answers(
        "owners",
        (
            owners_of(
                owner_of(0),
                owner_of(1, draining=("w2",)),
                owner_of(2, quarantined="event 17-0: thirteen", is_open=False),
                owner_of(3, is_open=False, standby=None),
                owner_of(4, owner=None),
            ),
        ),
    )
    assert [line for line in lines("streams", "owners", shop) if "─" not in line] == [
        "bill group shop/bill · version 4 · 3 workers · settled",
        "partition owner standby token state",
        "orders/0 w1 w3 7 at work",
        "orders/1 w1 w3 7 waits for w2 to release it",
        "orders/2 w1 w3 7 quarantined: event 17-0: thirteen",
        "orders/3 w1 - 7 not at work",
        "orders/4 - w3 7 the worker is gone and did not close the partition",
    ]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"settled": False}, "version 4 · 3 workers · not settled"),
        ({"settled": None}, "version 4 · 3 workers · cannot tell whether settled"),
        ({"workers": ("w1",), "version": 0}, "version - · 1 worker · settled"),
        ({"workers": (), "declared": False}, "not in this app · no workers"),
    ],
)
def test_what_stands_above_the_owners(lines, shop, answers, changed, said):
    answers("owners", (owners_of(owner_of(0), **changed),))
    assert lines("streams", "owners", shop)[0] == f"bill group shop/bill · {said}"


def test_query_of_spark_has_no_owners(lines, shop, answers):
    answers(
        "owners", (owners_of(owner_of(0), processor="spark/totals", workers=(), declared=False),)
    )
    assert lines("streams", "owners", shop) == [
        "spark/totals query of Spark: its driver reads all partitions"
    ]


def test_owners_as_json(run_json, shop, answers):
    answers("owners", (owners_of(owner_of(0, owner=None, standby=None)),))
    (one,) = run_json("streams", "owners", shop)["owners"]
    assert (one["group"], one["settled"], one["workers"]) == ("shop/bill", True, ["w1", "w2", "w3"])
    assert one["partitions"] == [
        {"partition": 0, "owner": None, "standby": None, "draining": [], "token": 7,
         "is_open": True, "quarantined": "", "paused": False},
    ]  # fmt: skip


# ── dead letters ─────────────────────────────────────────────────────────────────────────────────


def test_dead_letters_are_a_line_each_and_the_older_ones_counted(lines, shop, answers):
    asked = answers("dead_letters", DeadLetters(8, (letter_of(),)))
    _, _, one, more = lines("streams", "dead", shop, "--last", "1")
    assert one == (
        '1700000009000-0 bill orders/3 2023-11-14 22:13:29Z 3 ValueError: thirteen {"order_id":13}'
    )
    assert more == "… and 7 older letters: --last shows more"
    assert asked[0][0]["last"] == 1


def test_long_error_or_record_is_cut_in_the_list_and_whole_by_itself(run, shop, answers):
    long = letter_of(error="e" * 500, record="r" * 500)
    answers("dead_letters", DeadLetters(1, (long,)))
    answers("dead_letter", long)
    listed = "".join(run("streams", "dead", shop).stdout.split())
    assert "e" * 101 not in listed
    whole = "".join(run("streams", "dead", shop, long.id).stdout.split())
    assert "e" * 500 in whole
    assert "r" * 500 in whole


def test_one_dead_letter_with_its_traceback(lines, shop, answers):
    asked = answers("dead_letter", letter_of())
    assert lines("streams", "dead", shop, "1700000009000-0", "-p", "bill") == [
        "dead letter 1700000009000-0",
        "processor bill",
        "partition orders/3",
        "event 1700000000000-0, sent 2023-11-14 22:13:20Z",
        "given up 2023-11-14 22:13:29Z",
        "attempts 3",
        "error ValueError: thirteen",
        'record {"order_id":13}',
        "",
        "Traceback (most recent call last):",
        "File x",
        "ValueError: thirteen",
    ]
    assert asked == [("1700000009000-0", ALL | {"processor": "bill"})]


def test_dead_letters_as_json(run_json, shop, answers):
    answers("dead_letters", DeadLetters(8, (letter_of(),)))
    answers("dead_letter", letter_of())
    listed = run_json("streams", "dead", shop)
    assert (listed["total"], listed["letters"]) == (8, [attrs.asdict(letter_of())])
    assert run_json("streams", "dead", shop, "1-0") == attrs.asdict(letter_of())


@pytest.mark.parametrize("line", [(), ("17-0", "--all")])
@pytest.mark.parametrize("command", ["requeue", "discard"])
def test_requeue_and_discard_take_one_id_or_all(run, shop, answers, command, line):
    asked = answers(command, ())
    assert run("streams", command, shop, *line).exit_code == 2
    assert asked == []


def test_what_is_requeued(lines, run_json, shop, answers):
    one = Requeued(**WHERE, letter="17-0", event="18-0")
    asked = answers("requeue", (one,))
    assert lines("streams", "requeue", shop, "17-0")[2] == "17-0 bill orders/3 18-0"
    assert run_json("streams", "requeue", shop, "--all") == {"requeued": [attrs.asdict(one)]}
    assert asked == [("17-0", ALL), (None, ALL)]


# ── offsets ──────────────────────────────────────────────────────────────────────────────────────


def test_what_is_released(lines, run_json, shop, answers):
    one = Unquarantined(**WHERE, reason="event 17-0: thirteen", offset="17-0", skipped="17-0")
    asked = answers("unquarantine", (one,))
    assert lines("streams", "unquarantine", shop, "--skip")[2] == (
        "bill orders/3 17-0 17-0 event 17-0: thirteen"
    )
    assert run_json("streams", "unquarantine", shop) == {"unquarantined": [attrs.asdict(one)]}
    assert [named["skip"] for (named,) in asked] == [True, False]


def test_what_a_forgotten_processor_kept_waiting(lines, run_json, shop, answers):
    one = Forgotten(**WHERE, declared=False, waited=5, trimmed=4, letters=0)
    other = attrs.evolve(one, partition=4, waited=3, trimmed=0, letters=2, declared=True)
    asked = answers("forget_group", (one,))
    assert lines("streams", "forget-group", shop, "bill", "--force", "--yes") == [
        (
            "bill is forgotten in 1 partition: events it had not committed: 5; "
            "kept only for it, and now removed: 4"
        )
    ]
    assert asked == [("bill", {"stream": None, "force": True})]
    answers("forget_group", (one, other))
    assert lines("streams", "forget-group", shop, "bill", "--yes")[0].endswith(
        "its dead letters stay: 2; this app still has bill: the next worker registers it again, "
        "at its configured start"
    )
    assert len(run_json("streams", "forget-group", shop, "bill", "--yes")["forgotten"]) == 2


ASKING = [
    ("reset", ("bill", "--to", "latest"), "Move the offset of bill as shown above, to latest?"),
    ("forget-group", ("bill",), "This app still has bill. Forget its offsets, as shown above?"),
    ("discard", ("--all",), "Remove all chosen dead letters, for good?"),
]


@pytest.mark.parametrize(("command", "given", "_"), ASKING)
def test_what_asks_wants_yes_without_a_terminal(run, shop, answers, command, given, _):
    asked = answers(command.replace("-", "_"), ())
    result = run("streams", command, shop, *given)
    assert result.exit_code == 1
    assert "without a terminal, add --yes" in result.stderr
    assert asked == []
    assert run("streams", command, shop, *given, "--yes").exit_code == 0
    assert len(asked) == 1


def test_what_a_reset_moves(lines, run, shop, answers):
    one = Moved(**WHERE, before="17-0", after="0-0", gone_before="")
    asked = answers("reset", (one,))
    line = ("streams", "reset", shop, "bill", "--to", "earliest", "-n", "3", "--yes")
    assert lines(*line)[2] == "bill orders/3 17-0 0-0"
    assert json.loads(run(*line, "--json").stdout) == {"moved": [attrs.asdict(one)]}
    assert asked[0] == ("bill", "earliest", {"stream": None, "partition": 3})


def test_reset_before_what_is_kept_says_what_may_be_gone(lines, shop, answers):
    gone = "2023-11-14T22:13:20.000+00:00"
    answers("reset", (Moved(**WHERE, before="17-0", after="4-9", gone_before=gone),))
    shown = lines("streams", "reset", shop, "bill", "--to", "2023-11-14", "--yes")
    assert shown[2:] == [
        "bill orders/3 17-0 4-9",
        "",
        (
            "orders/3 events that were sent before 2023-11-14 22:13:20Z may be gone: "
            "they were not kept"
        ),
    ]


@pytest.mark.parametrize(("answer", "done"), [("y\n", 1), ("n\n", 0)])
@pytest.mark.parametrize(("command", "given", "question"), ASKING)
def test_on_a_terminal_it_shows_how_it_is_and_asks(
    shop, answers, monkeypatch, command, given, question, answer, done
):
    import sys

    from click.testing import CliRunner

    from rink.cli.commands import commands

    asked = answers(command.replace("-", "_"), ())
    answers("lag", (lag_of(),))
    answers("dead_letters", DeadLetters(1, (letter_of(),)))

    class Terminal(type(sys)):
        stdin = type("stdin", (), {"isatty": staticmethod(lambda: True)})

    monkeypatch.setattr("rink.cli.stream_admin.sys", Terminal("sys"))
    result = CliRunner().invoke(commands, ["streams", command, shop, *given], input=answer)
    assert "orders/3" in result.stderr
    assert f"{question} [y/N]" in result.stderr
    assert (result.exit_code, len(asked)) == (1 - done, done)


def test_who_is_not_in_the_app_is_forgotten_without_a_question(run, shop, answers):
    asked = answers("forget_group", ())
    assert run("streams", "forget-group", shop, "old").exit_code == 0
    assert len(asked) == 1


@pytest.mark.parametrize(("command", "made"), [("pause", Paused), ("resume", Resumed)])
def test_pause_and_resume_tell_each_partition(lines, run_json, shop, answers, command, made):
    one = made(**WHERE, lag=7)
    asked = answers(command, (one,))
    line = ("streams", command, shop, "bill", "-n", "3")
    assert lines(*line)[2] == "bill orders/3 7"
    assert run_json(*line) == {f"{command}d": [attrs.asdict(one)]}
    assert asked[0] == ("bill", {"stream": None, "partition": 3})
    answers(command, ())
    assert lines(*line)[0].startswith(f"nothing to {command}")


@pytest.mark.parametrize(
    ("changed", "state"),
    [
        ({"paused": True}, "owned, paused"),
        ({"paused": True, "owned": False}, "no owner, paused"),
        ({"paused": True, "quarantined": "why"}, "quarantined, paused"),
        ({"paused": True, "offset": "", "owned": False}, "never started, paused"),
    ],
)
def test_lag_of_a_paused_partition_says_so(lines, shop, answers, changed, state):
    answers("lag", (lag_of(**changed),))
    assert lines("streams", "lag", shop)[2].endswith(state)


def test_owners_of_a_paused_partition_say_so(lines, shop, answers):
    paused = (owner_of(0, paused=True), owner_of(1, paused=True, is_open=False))
    answers("owners", (owners_of(*paused),))
    *_, first, second = lines("streams", "owners", shop)
    assert first == "orders/0 w1 w3 7 paused"
    assert second == "orders/1 w1 w3 7 paused, not at work"


def test_what_is_discarded(lines, run_json, shop, answers):
    one = Discarded(**WHERE, letters=7)
    asked = answers("discard", (one,))
    assert lines("streams", "discard", shop, "17-0")[2] == "bill orders/3 7"
    assert run_json("streams", "discard", shop, "--all", "--yes") == {
        "discarded": [attrs.asdict(one)]
    }
    assert asked == [("17-0", ALL), (None, ALL)]
    answers("discard", ())
    assert lines("streams", "discard", shop, "17-0") == ["no dead letters"]


def test_what_was_done_before_an_error_is_said_with_it(run, shop, answers):
    error = StateError("orders/1 is quarantined for another event")
    error.add_note("changed: bill orders/0")
    answers("unquarantine", error)
    said = run("streams", "unquarantine", shop, "--skip").stderr
    assert said == "rink: orders/1 is quarantined for another event; changed: bill orders/0\n"

"""Test the options, the metrics and the end of `rink worker`.

The worker itself is a stand-in.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import urllib.error
import urllib.request

import pytest

import rink.streams
from rink.cli import workers
from rink.streams import RedisUnavailable, WorkerHalted


@pytest.fixture
def made(monkeypatch):
    """Return the workers that were made, each with its arguments.

    `made.run` is what they do.
    """

    class Made(list):
        @staticmethod
        async def run(worker):
            pass

    made = Made()

    class Worker(rink.streams.Worker):
        def __init__(self, app, processors=None, *, name=None, handover_wait):
            super().__init__(app, processors, name=name, handover_wait=handover_wait)
            self.given = (app.name, processors, name)
            made.append(self)

        async def run(self):
            await made.run(self)

        @property
        def is_told(self):
            return self._orders.leave

        @property
        def is_hurried(self):
            return self._orders.now

    monkeypatch.setattr(rink.streams, "Worker", Worker)
    return made


@pytest.fixture(autouse=True)
def as_it_was():
    """Check that signals and logging are as before."""
    before = {one: signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)}
    yield
    assert before == {one: signal.getsignal(one) for one in before}


@pytest.mark.parametrize(
    ("line", "processors"),
    [
        ((), None),
        (("--processors", "bill"), ["bill"]),
        (("--processors", "ship, bill"), ["ship", "bill"]),
        (("--processors", "bill", "--processors", "ship,bill"), ["bill", "ship"]),
    ],
)
def test_which_processors_and_under_which_name(run, shop, made, line, processors):
    result = run("worker", shop, "--name", "w1", *line)
    assert result.exit_code == 0, result.output
    assert [one.given for one in made] == [("shop", processors, "w1")]


def test_option_that_names_no_processor_does_not_mean_all(run, shop, made):
    result = run("worker", shop, "--processors", " ,")
    assert (result.exit_code, made) == (2, [])
    assert "no processor is named" in result.stderr


def test_processor_that_the_app_does_not_have(run, shop, made):
    result = run("worker", shop, "--processors", "bil")
    assert result.exit_code == 1
    assert result.stderr == "rink: app 'shop' has no processor 'bil'; it has ['bill', 'ship']\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_first_signal_has_it_leave_and_a_second_is_the_systems(run, shop, made, number):
    seen = []

    async def live(worker):
        os.kill(os.getpid(), number)
        await asyncio.wait_for(worker.is_told.wait(), 10)
        seen.extend(signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT))

    made.run = live
    result = run("worker", shop)
    assert result.exit_code == 0, result.output
    assert seen == [signal.SIG_DFL, signal.SIG_DFL]


def test_second_signal_ends_the_wait_and_a_third_the_process(run, shop, made, caplog):
    seen = []

    async def live(worker):
        for told in (worker.is_told, worker.is_hurried):
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
            seen.append((worker.is_told.is_set(), worker.is_hurried.is_set()))
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(told.wait(), 10)
        seen.append(signal.getsignal(signal.SIGINT))

    made.run = live
    caplog.set_level("INFO")
    result = run("worker", shop, "--handover-wait", "8", "--name", "w1")
    assert result.exit_code == 0, result.output
    assert seen == [(False, False), (True, False), signal.SIG_DFL]
    assert [one for one in caplog.messages if one.startswith("SIGTERM")] == [
        (
            "SIGTERM: worker w1 is leaving; waits up to 8 s for a successor; "
            "a second signal ends the wait"
        ),
        "SIGTERM: worker w1 waits for no successor; another signal ends it at once",
    ]


@pytest.mark.parametrize(
    ("environment", "line", "wait_s"),
    [
        ({}, (), 0.0),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, (), 20.0),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "RINK_HANDOVER_WAIT": "7"}, (), 7.0),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, ("--handover-wait", "0"), 0.0),
    ],
)
def test_wait_for_a_successor_is_longer_in_kubernetes(
    run, shop, made, monkeypatch, environment, line, wait_s
):
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    result = run("worker", shop, *line)
    assert result.exit_code == 0, result.output
    assert [one.handover_wait for one in made] == [wait_s]


@pytest.mark.parametrize(
    ("grace", "warning"),
    [
        ("53", ""),
        (
            "52",
            (
                "leaving takes up to 48 s, but the pod is killed after 52 s: set "
                "terminationGracePeriodSeconds to 53 or more, or make --handover-wait shorter"
            ),
        ),
        (
            None,
            (
                "leaving takes up to 48 s: set terminationGracePeriodSeconds to 53 or more "
                "(Kubernetes' default is 30), and --termination-grace to the same"
            ),
        ),
    ],
)
def test_sum_of_all_waits_is_compared_with_the_grace(
    run, shop, made, monkeypatch, caplog, grace, warning
):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    if grace:
        monkeypatch.setenv("RINK_TERMINATION_GRACE", grace)
    assert run("worker", shop).exit_code == 0
    assert [one for one in caplog.messages if one.startswith("leaving takes")] == [warning][
        : bool(warning)
    ]


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "20s", "abc"])
@pytest.mark.parametrize("option", ["--handover-wait", "--termination-grace"])
def test_time_that_is_no_time_is_refused_by_its_option(run, shop, made, monkeypatch, option, text):
    result = run("worker", shop, option, text)
    assert (result.exit_code, made) == (2, [])
    assert option in result.stderr
    monkeypatch.setenv(f"RINK_{option.strip('-').replace('-', '_').upper()}", text)
    result = run("worker", shop)
    assert (result.exit_code, made) == (2, [])
    assert option in result.stderr


def test_empty_variables_count_as_not_set(run, shop, made, monkeypatch):
    for name in ("RINK_HANDOVER_WAIT", "RINK_TERMINATION_GRACE"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert run("worker", shop).exit_code == 0
    assert [one.handover_wait for one in made] == [20.0]


def test_sigterm_ends_process_1_while_its_app_is_loaded(run, shop, made, monkeypatch):
    """The kernel ignores a signal to process 1 that has no handler."""
    seen, load = [], workers.apps.load

    def look(app):
        seen.append(signal.getsignal(signal.SIGTERM))
        return load(app)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(workers.apps, "load", look)
    monkeypatch.setattr(workers, "_LAST", workers._exit)
    try:
        assert run("worker", shop).exit_code == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [workers._exit]


def test_signal_is_heard_though_a_processor_keeps_the_loop_busy(run, shop, made):
    async def live(worker):
        os.kill(os.getpid(), signal.SIGTERM)
        while signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            pass
        await worker.is_told.wait()

    made.run = live
    assert run("worker", shop).exit_code == 0


@pytest.mark.parametrize(
    "error",
    [
        RedisUnavailable("Redis at x cannot be reached"),
        WorkerHalted("event 17-0 of 'orders/3'"),
        ExceptionGroup("tasks", [RedisUnavailable("Redis at x cannot be reached")]),
    ],
)
def test_what_ends_it_is_one_line_and_status_1(run, shop, made, error):
    async def live(worker):
        raise error

    made.run = live
    result = run("worker", shop, "--log-level", "error")
    assert result.exit_code == 1
    assert result.stderr in {
        "rink: Redis at x cannot be reached\n",
        "rink: event 17-0 of 'orders/3'\n",
    }


def test_metrics_are_served_with_those_of_the_process(run, shop, made, monkeypatch):
    pages = []
    served = []
    monkeypatch.setattr(workers.log, "info", lambda *told: served.append(told))

    async def live(worker):
        port = next(told[2] for told in served if "metrics" in told[0])
        url = f"http://127.0.0.1:{port}/metrics"
        answer = await asyncio.to_thread(urllib.request.urlopen, url, timeout=10)
        with answer:
            pages.append(answer.read().decode())

    made.run = live
    result = run("worker", shop, "--metrics-port", "0")
    assert result.exit_code == 0, result.output
    assert "rink_streams_lag" in pages[0]
    assert "python_info" in pages[0]


def test_readyz_says_whether_the_worker_is_ready(run, shop, made, monkeypatch):
    served, statuses = [], []
    monkeypatch.setattr(workers.log, "info", lambda *told: served.append(told))

    def ask(port):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    async def live(worker):
        port = next(told[2] for told in served if "metrics" in told[0])
        for is_ready in (False, True):
            monkeypatch.setattr(type(worker), "is_ready", is_ready, raising=False)
            statuses.append(await asyncio.to_thread(ask, port))

    made.run = live
    result = run("worker", shop, "--metrics-port", "0")
    assert result.exit_code == 0, result.output
    assert statuses == [503, 200]


def test_port_that_is_taken(run, shop, made):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        port = one.getsockname()[1]
        result = run("worker", shop, "--metrics-port", str(port))
    assert result.exit_code == 1
    assert result.stderr == (
        f"rink: cannot serve metrics at 127.0.0.1:{port}: Address already in use\n"
    )


def test_logging_that_the_app_has_set_up_is_left_alone(run, shop, made):
    before = logging.getLogger().handlers[:]
    assert before, "pytest has some"
    run("worker", shop)
    assert logging.getLogger().handlers == before

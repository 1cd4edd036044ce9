"""Measure the promises of `rink run`, one row each.

Run it as `python integration/run/figures.py`.

    --docs                 write docs/internals/run-figures.md
    --only 'handover,kill' only the rows whose description has one of these words
    --tries 3              tries of each row that strikes a command (10)

Each limit is fixed. Run it alone on the machine. Exit status 1: a limit is missed.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import datetime as dt
import os
import signal
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT)]

import attrs  # noqa: E402 - what is ours needs the path above
from handing_over import hand_over, time_start  # noqa: E402
from network import Network, refusal  # noqa: E402
from processes import is_alive, wait_stopped  # noqa: E402
from run_support import SHORT_TTL, Beats, Running, boot_ms, wait_for  # noqa: E402
from wire import Wire  # noqa: E402

from rink.testing import EtcdNode, local_etcd  # noqa: E402

PAGE = ROOT / "docs" / "internals" / "run-figures.md"

HANDOVERS, HANDOVER_P99_S = 100, 0.3
SIGNAL_S = 0.2
SLOTS = 50
SLOT_OFFSETS = (-2, 0, 2)
"""Minutes by which the hosts' clocks are wrong."""


@attrs.define
class Scene:
    """Hold the processes of one try: `rink run`, commands, a wire to etcd."""

    etcd: EtcdNode
    folder: Path
    opened: contextlib.ExitStack
    prefix: str = attrs.field(factory=lambda: f"figures-{uuid.uuid4().hex}/")
    beats: Beats = attrs.field(init=False)
    wire: Wire = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.beats = Beats(self.folder / "beats")
        self.lay("127.0.0.1")

    def lay(self, host: str) -> None:
        """Connect the wire from an address of this machine."""
        self.wire = Wire(self.etcd.endpoint, host)
        self.opened.callback(self.wire.close)

    def run(self, *line: str, **more: object) -> Running:
        """Start `rink run`."""
        running = Running(self.wire.endpoint, self.prefix, *line, **{"ttl": SHORT_TTL, **more})
        self.opened.callback(running.close)
        return running

    def struck(self, strike: Callable[[Running], object], **more: object) -> tuple[int, int]:
        """Run a command with an orphan, both deaf to SIGTERM, and strike.

        Returns:
            The milliseconds from the last death to the told end, and the number of processes that
            are left.
        """
        running = self.run("--once", "--", *self.beats.command("orphan", "deaf"), **more)
        self.beats.wait("orphan")
        self.beats.wait("child")
        strike(running)
        pids = {beat.pid for beat in self.beats.all()}
        wait_for(lambda: not any(map(is_alive, pids)))
        dead_at = boot_ms()
        until = max(beat.until for beat in self.beats.all())
        return until - dead_at, sum(is_alive(beat.pid) for beat in self.beats.all())


@contextlib.contextmanager
def scene(etcd: EtcdNode) -> Iterator[Scene]:
    """Make a scene, and end everything in it at the end."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as opened:
        yield Scene(etcd, Path(folder), opened)


@attrs.frozen
class Figure:
    """Hold the outcome of one row."""

    tries: int
    limit: str
    text: str
    is_met: bool


Row = Callable[[EtcdNode, int], Figure]
ROWS: dict[str, Row] = {}


def row(what: str) -> Callable[[Row], Row]:
    """Add a row to the table."""

    def add(function: Row) -> Row:
        ROWS[what] = function
        return function

    return add


def milliseconds(seconds: float) -> str:
    """Return a duration for the table."""
    return f"{seconds * 1000:.0f} ms"


@row("a real HTTP server handed over between two network namespaces: the gap that a client sees")
def handover(etcd: EtcdNode, _: int) -> Figure:
    """Time 100 gaps.

    The server ends at once at SIGTERM, so its own stop adds nothing.
    """
    starts: list[float] = []
    with scene(etcd) as made, contextlib.closing(Network()) as network:
        made.lay(network.here)
        seen = hand_over(
            network,
            lambda host, line: made.run(*line, before=host.command),
            HANDOVERS,
            lambda: starts.append(time_start()),
        )
    gaps = sorted(seen.gaps)
    p99 = statistics.quantiles(gaps, n=100, method="inclusive")[98]
    text = (
        f"median {milliseconds(statistics.median(gaps))}, p99 {milliseconds(p99)}, "
        f"longest {milliseconds(gaps[-1])}; meanwhile a bare Python started in "
        f"{milliseconds(statistics.median(starts))} (median)"
    )
    is_met = p99 < HANDOVER_P99_S and len(gaps) == HANDOVERS and seen.tokens == sorted(seen.tokens)
    return Figure(len(gaps), f"p99 below {milliseconds(HANDOVER_P99_S)}", text, is_met)


def ends_at_once(tries: int, once: Callable[[], float]) -> Figure:
    """Time several ends, each of which must stay below the limit."""
    took = [once() for _ in range(tries)]
    text = f"median {milliseconds(statistics.median(took))}, longest {milliseconds(max(took))}"
    return Figure(tries, f"below {milliseconds(SIGNAL_S)}", text, max(took) < SIGNAL_S)


def end_of(waiting: Running) -> float:
    """Send SIGTERM to a waiting `rink run`, and return the seconds to its end."""
    at = time.monotonic()
    assert waiting.ends(signal.SIGTERM) == -signal.SIGTERM
    return time.monotonic() - at


@row("SIGTERM while waiting for the role (consul#4439): until the process has ended")
def sigterm_waiting(etcd: EtcdNode, tries: int) -> Figure:
    """Time the end of standbys."""
    with scene(etcd) as made:
        made.run("--", *made.beats.command())
        made.beats.wait()

        def once() -> float:
            waiting = made.run("--handover-wait", "20", "--", "true")
            waiting.wait_log("waits for role")
            return end_of(waiting)

        return ends_at_once(tries, once)


@row("the same, and etcd has gone silent")
def sigterm_silent(etcd: EtcdNode, tries: int) -> Figure:
    """Time the end of standbys that cannot leave in order."""
    with scene(etcd) as made, scene(etcd) as other:
        other.prefix = made.prefix
        other.run("--", *other.beats.command())
        other.beats.wait()

        def once() -> float:
            made.wire.heal()
            waiting = made.run("--", "true")
            waiting.wait_log("waits for role")
            made.wire.silence()
            return end_of(waiting)

        return ends_at_once(tries, once)


def before_the_end(
    etcd: EtcdNode, tries: int, strike: Callable[[Scene, Running], object], **more: object
) -> Figure:
    """Strike several times; all must be dead before the told end."""
    left, alive = [], 0
    for _ in range(tries):
        with scene(etcd) as made:
            before_ms, rest = made.struck(lambda run, made=made: strike(made, run), **more)
            left.append(before_ms)
            alive += rest
    text = f"latest {min(left)} ms before, median {statistics.median(left):.0f} ms; {alive} left"
    return Figure(tries, "all dead before the end told", text, min(left) > 0 and not alive)


def stop(pid: int) -> None:
    """Stop a process."""
    os.kill(pid, signal.SIGSTOP)
    wait_stopped(pid)


@row("`rink run` killed by SIGKILL")
def run_killed(etcd: EtcdNode, tries: int) -> Figure:
    """Kill `rink run`: the guard kills at the told end."""
    return before_the_end(etcd, tries, lambda _, run: run.send(signal.SIGKILL))


@row("`rink run` stopped")
def run_stopped(etcd: EtcdNode, tries: int) -> Figure:
    """Stop `rink run`: the guard gets no further end."""
    return before_the_end(etcd, tries, lambda _, run: stop(run.pid))


@row("etcd silent (consul#9788: 90 s late)")
def etcd_silent(etcd: EtcdNode, tries: int) -> Figure:
    """Cut off the answers of etcd, keepalives among them."""
    return before_the_end(etcd, tries, lambda made, _: made.wire.silence())


@row("the guard killed")
def guard_killed(etcd: EtcdNode, tries: int) -> Figure:
    """Kill the guard: `rink run` kills what is left."""
    return before_the_end(etcd, tries, lambda _, run: os.kill(run.guard, signal.SIGKILL))


@row("the guard stopped, and etcd silent")
def guard_stopped(etcd: EtcdNode, tries: int) -> Figure:
    """Stop the guard: `rink run` kills in its place."""

    def strike(made: Scene, run: Running) -> None:
        stop(run.guard)
        made.wire.silence()

    return before_the_end(etcd, tries, strike)


@row("the guard stopped, and etcd silent, with a TTL of 12 s")
def guard_stopped_long(etcd: EtcdNode, tries: int) -> Figure:
    """Stop the guard with a long TTL: `rink run` checks in time."""

    def once() -> tuple[int, int]:
        with scene(etcd) as made:
            run = made.run("--once", "--", *made.beats.command("orphan", "deaf"), ttl=12)
            made.beats.wait("orphan")
            stop(run.guard)
            made.wire.silence()
            run.ends()
            until = max(beat.until for beat in made.beats.all())
            alive = sum(is_alive(beat.pid) for beat in made.beats.all())
            return until - made.beats.all()[-1].at, alive

    tries = min(tries, 5)
    seen = [once() for _ in range(tries)]
    left, alive = min(one for one, _ in seen), sum(one for _, one in seen)
    text = f"latest {left} ms before; {alive} left"
    return Figure(tries, "all dead before the end told", text, left > 0 and not alive)


@row("etcd silent, and a stderr that nobody reads")
def stderr_unread(etcd: EtcdNode, tries: int) -> Figure:
    """Leave stderr unread: log lines must not delay a kill."""
    source, target = os.pipe()

    def strike(made: Scene, _: Running) -> None:
        os.set_blocking(target, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(target, b"x")
        os.set_blocking(target, True)
        made.wire.silence()

    try:
        return before_the_end(etcd, tries, strike, popen={"stderr": target})
    finally:
        os.close(source)
        os.close(target)


@row(
    "TERM, INT, QUIT or HUP, with a grandchild in a session of its own (consul#2022, #1210, #2489)"
)
def grandchild(etcd: EtcdNode, tries: int) -> Figure:
    """Check that no process is left when `rink run` has ended."""
    alive = 0
    numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP]
    for number in numbers * tries:
        with scene(etcd) as made:
            shell = '"$@" & exec 1>&-; wait'
            command = ["sh", "-c", shell, "sh", *made.beats.command("orphan")]
            run = made.run("--grace", "1", "--", *command)
            made.beats.wait("child")
            made.beats.wait("orphan")
            assert run.ends(number) == -number
            alive += sum(is_alive(beat.pid) for beat in made.beats.all())
    text = f"{alive} processes left"
    return Figure(len(numbers) * tries, "nothing is left", text, not alive)


@row(
    "`rink run` killed by SIGKILL beside a standby: "
    "from the old command's last beat to the new one's"
)
def takeover(etcd: EtcdNode, tries: int) -> Figure:
    """Check that the new command starts after the old one is dead.

    Its token is greater.
    """
    gaps = []
    for _ in range(tries):
        with scene(etcd) as made:
            first = made.run("--", *made.beats.command("orphan", "deaf"))
            old = made.beats.wait("child")
            standby = made.run("--", *made.beats.command())
            standby.wait_log("waits for role")
            first.send(signal.SIGKILL)
            new = made.beats.wait("child", token_above=old.token)
            last = [beat for beat in made.beats.all() if beat.token == old.token][-1]
            gaps.append(new.at - last.at)
    text = f"shortest {min(gaps)} ms, longest {max(gaps)} ms"
    return Figure(tries, "no overlap", text, min(gaps) > 0)


@row("`--once-per`, three hosts whose clocks are two minutes apart")
def slots(etcd: EtcdNode, _: int) -> Figure:
    """Check that each slot of all hosts runs once, and none twice."""

    def slot_at(minute: int) -> str:
        return f"2026-11-29T{minute // 60:02d}:{minute % 60:02d}Z"

    with scene(etcd) as made:
        path = made.folder / "ran"
        path.touch()
        for minute in range(2, SLOTS + 6):  # of the right clock
            started = []
            for offset in SLOT_OFFSETS:
                slot = slot_at(minute + offset)
                job = ["sh", "-c", 'echo "$1" >> "$2"', "sh", slot, str(path)]
                started.append(made.run("--once-per", slot, "--", *job))
            assert [run.ends() for run in started] == [0, 0, 0]
        ran = collections.Counter(path.read_text().split())
    by_all = [slot_at(minute) for minute in range(4, SLOTS + 4)]
    missed = sum(not ran[slot] for slot in by_all)
    twice = sum(count > 1 for count in ran.values())
    text = f"{twice} ran twice, {missed} did not run"
    return Figure(len(by_all), "each ran once", text, not twice and not missed)


def page(figures: dict[str, Figure], minutes: float, load: float) -> str:
    """Return the text of the page."""
    date = dt.datetime.now(tz=dt.UTC).date().isoformat()
    rows = "\n".join(
        f"| {what} | {figure.tries} | {figure.limit} | {figure.text} |"
        for what, figure in figures.items()
    )
    return f"""# Figures of `rink run`

Written by `python integration/run/figures.py --docs`; do not edit. Measured on {date} on
{os.cpu_count()} cores, in {minutes:.0f} minutes. The load average at the start was {load:.0f}.

| what | tries | limit | figure |
|---|--:|---|---|
{rows}

The TTL is 3 s unless another one is named: an end is told at most 2.5 s ahead, and SIGKILL comes
0.5 s before it. The struck commands ignore SIGTERM, and each has an orphan in a session of its own.
*Before* is the time from the last death to the told end, and *left* is the number of processes that
are alive then. `make deep PART=run` measures all rows again, and fails if a limit is missed.
"""


def main() -> int:
    """Measure the chosen rows, and return the exit status."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--docs", action="store_true", help=f"write {PAGE.name}")
    parser.add_argument("--only", metavar="WORD,…", help="rows with one of these words")
    parser.add_argument("--tries", type=int, default=10, help="of each row that strikes a command")
    chosen = parser.parse_args()
    if chosen.docs and chosen.only:
        parser.error("--docs writes the whole table, so it cannot go with --only")
    if why := refusal():
        parser.error(f"the handover needs network namespaces: {why}")
    words = chosen.only.split(",") if chosen.only else [""]
    load = os.getloadavg()[0]
    began, figures = time.monotonic(), {}
    with local_etcd() as etcd:
        for what, measure in ROWS.items():
            if any(word in what for word in words):
                figures[what] = figure = measure(etcd, chosen.tries)
                verdict = "" if figure.is_met else "MISSED: "
                print(f"{verdict}{what}: {figure.text} ({figure.limit})", flush=True)
    if chosen.docs:
        minutes = (time.monotonic() - began) / 60
        PAGE.write_text(page(figures, minutes, load), encoding="utf-8")
    return 0 if all(figure.is_met for figure in figures.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""Measure Go Rink v2.

Our small program on it (`gorink_program`) is driven as our own members are.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from arena import Arena
from child import Child, now
from figures import PeerFigure
from parts.handover import PingPong

from peers.common import APART_S, SETTLING, NotToBeHadError, handover_figures

PEER = "Go Rink v2"
PROGRAM = Path(__file__).with_name("gorink_program") / "main.go"
MODULE = "github.com/luno/rink/v2"
FROM = "RINK_GO_SOURCE"
WAITS_S = 600.0
TTL_S = 60  # of its sessions, fixed
SEES_S = 0.3  # its members do not say whom they see
HANDOVERS = [(1, 100, 10), (100, 20, 3), (1000, 10, 2)]


def measure(arena: Arena) -> tuple[list[PeerFigure], list[str]]:
    with tempfile.TemporaryDirectory(prefix="bench-gorink-") as folder:
        arena.progress("Go Rink: building", 0, 1)
        program, what = build(Path(folder))
        found = [
            *_get(arena, program),
            *_handovers(arena, program),
            *_writes(arena, program),
            _settling(arena, program),
        ]
        if not arena.quick:
            found.append(_crash(arena, program))
    note = (
        f"{what}; its own defaults, but NewMemberWait, which is {WAITS_S:g} s where a newcomer "
        f"replaces a leaver and {SETTLING:g} s where five start. The TTL of its sessions "
        f"is {TTL_S} s and cannot be set. `let go` is when the role's context ends, `gained` when "
        "AwaitRoleContext returns."
    )
    return found, [note]


def build(folder: Path) -> tuple[Path, str]:
    """Build the program in a folder of its own.

    Its module comes from Go's proxy or a checkout.

    Raises:
        NotToBeHadError: no Go, or no module.
    """
    go = shutil.which("go")
    if go is None:
        raise NotToBeHadError("there is no Go on this machine")
    shutil.copy(PROGRAM, folder)

    def run(*arguments: str) -> str:
        ran = subprocess.run(
            [go, *arguments],
            cwd=folder,
            env={**os.environ, "GOWORK": "off", "GOFLAGS": "-mod=mod"},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        if ran.returncode:
            said = " ".join(re.sub(r"https?://\S+", "", ran.stderr).split())[-200:]
            raise NotToBeHadError(
                f"`go {' '.join(arguments)}` failed: {said} ({FROM}=/path/to/a/checkout builds "
                "with that, without the module proxy)"
            )
        return ran.stdout.strip()

    run("mod", "init", "gorink")
    source = os.environ.get(FROM)
    if source:
        path = Path(source).resolve()
        run("mod", "edit", f"-require={MODULE}@v2.0.0", f"-replace={MODULE}={path}")
    else:
        run("get", f"{MODULE}@latest")
    run("mod", "tidy")
    run("build", "-o", "gorink", ".")
    if not source:
        return folder / "gorink", run("list", "-m", MODULE)
    commit = subprocess.run(
        ["git", "-C", source, "log", "-1", "--format=%h of %as"],
        capture_output=True,
        text=True,
        check=False,
    )
    return folder / "gorink", f"{MODULE} from a checkout ({commit.stdout.strip()})"


def start(arena: Arena, program: Path) -> Child:
    """Start a process of the program."""
    return Child([str(program)], arena.etcd.endpoint)


class GoPingPong(PingPong):
    """Run two Go processes that leave and join in turn, as ours do."""

    def __init__(self, arena: Arena, program: Path, roles: int) -> None:
        self._roles = roles
        self._group = arena.prefix().strip("/")
        self.holder, self.heir = start(arena, program), start(arena, program)
        self._turn = 0
        self._join(self.holder)
        self.holder.ask("held", name=self._name, roles=roles)

    def _join(self, child: Child) -> None:
        child.ask("join", group=self._group, names=[self._name], wait=WAITS_S)
        child.ask("hold", name=self._name, roles=self._roles)

    def _wait_seen(self, leaver: str) -> None:
        time.sleep(SEES_S)


def _handovers(arena: Arena, program: Path) -> list[PeerFigure]:
    found = []
    for roles, times, quick_times in HANDOVERS:
        count = arena.pick(times, quick_times)
        turns = GoPingPong(arena, program, roles)
        turns.hand_over()  # warms both up
        gaps, spans = [], []
        for turn in range(count):
            arena.progress(f"Go Rink: {roles:,} roles", turn, count)
            gap, span = turns.hand_over()
            gaps.append(gap)
            spans.append(span)
        turns.close()
        found += handover_figures(PEER, roles, gaps, spans)
    return found


def _together(
    arena: Arena, program: Path, names: list[str], wait: float, apart: float = 0.0
) -> tuple[dict, float]:
    """Start members in processes of their own, all at once.

    Return them, and the seconds until all have ranks.
    """
    group = arena.prefix().strip("/")
    children = {name: start(arena, program) for name in names}
    for name, child in children.items():
        child.tell("join", group=group, names=[name], wait=wait)
        time.sleep(apart)
    began = min(child.answer()["asked_at"] for child in children.values())
    for name, child in children.items():
        child.tell("settled", names=[name], size=len(names))
    settled = max(child.answer()["at"] for child in children.values())
    return {"group": group, **children}, settled - began


def _end(children: dict) -> None:
    for child in children.values():
        if isinstance(child, Child):
            child.kill()
            child.close()


def _settling(arena: Arena, program: Path) -> PeerFigure:
    arena.progress("Go Rink: five that start", 0, 1)
    children, seconds = _together(arena, program, [f"m{i}" for i in range(5)], SETTLING, APART_S)
    _end(children)
    return PeerFigure(peer=PEER, key="settle.5", value=seconds, unit="s")


def _get(arena: Arena, program: Path) -> list[PeerFigure]:
    arena.progress("Go Rink: Roles.Get", 0, 1)
    children, _ = _together(arena, program, ["a", "b"], 0.01)
    rates = children["a"].ask("get_role", name="a", rounds=5, size=20_000)["rates"]
    _end(children)
    return [
        PeerFigure(peer=PEER, key=f"get_role.{kind}", value=max(found), unit="/s")
        for kind, found in rates.items()
    ]


def _writes(arena: Arena, program: Path) -> list[PeerFigure]:
    found = []
    for roles in (10, 1000):
        arena.progress(f"Go Rink: writes with {roles:,} roles", 0, 1)
        children, _ = _together(arena, program, ["a", "b", "c"], 0.01)
        for name in ("a", "b", "c"):
            children[name].ask("hold", name=name, roles=roles)
        time.sleep(arena.pick(3, 2))
        before = arena.metrics()
        children["new"] = start(arena, program)
        children["new"].ask("join", group=children["group"], names=["new"], wait=WAITS_S)
        children["new"].ask("hold", name="new", roles=roles)
        time.sleep(SEES_S)
        children["b"].ask("leave", names=["b"])
        children["new"].ask("settled", names=["new"], size=3)
        time.sleep(2)
        after = arena.metrics()
        _end(children)
        requests = after.since(before, "grpc_server_started_total", "unary")
        found.append(
            PeerFigure(
                peer=PEER,
                key=f"writes.{roles}.all",
                value=after.since(before, "etcd_debugging_mvcc_current_revision"),
                unit="",
                more={"requests": requests},
            )
        )
    return found


def _crash(arena: Arena, program: Path) -> PeerFigure:
    arena.progress("Go Rink: a crash (its TTL is 60 s)", 0, 1)
    group = arena.prefix().strip("/")
    holder, heir = start(arena, program), start(arena, program)
    for name, child in (("a", holder), ("b", heir)):
        child.ask("join", group=group, names=[name], wait=WAITS_S)
        child.ask("hold", name=name, roles=10)
        if name == "a":
            child.ask("held", name="a", roles=10)
    time.sleep(1)
    killed = holder.kill()
    stamps = heir.ask("held", name="b", roles=10)["stamps"]
    took = max(at for at, what, _ in stamps if what == "gained") - killed
    took_ends = now() - killed
    holder.close()
    heir.kill()
    heir.close()
    note = f"TTL {TTL_S} s"
    more = {"seen_after": took_ends}
    return PeerFigure(peer=PEER, key="crash.ttl3", value=took, unit="s", note=note, more=more)

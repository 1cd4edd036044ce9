"""Members killed at each step of a join, a proclamation and a hand-over.

First each scene is rehearsed, to learn which places its doomed member comes by, and how often. Then
every place of every scene is died at, again and again; a seed decides at which crossing. Each kill
is one small group under a prefix of its own, and many of them run side by side on one etcd.
A case that fails is named, and runs alone with RINK_KILL set to that name.
"""

import collections
import concurrent.futures
import itertools
import json
import os
import random
import socket
import statistics
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from faults_killing import AMID, ANY_MOMENT
from faults_members_group import row_of_all
from faults_members_scenes import HARMLESS, PHASES, SCENES, TTL_S, Doomed
from faults_members_support import Members
from faults_members_worker import Wire

from rink.engine.clock import SYSTEM
from rink.testing.history import Judgement

pytest_plugins = ["faults_members_fixtures"]

KILLS = 240
LEAST = 3  # deaths at each place
TRIES = 3  # more, where fewer have died
SIDE_BY_SIDE = (
    12  # more only keep two cores busy: a start takes seconds then, which would count as gaps
)
AMID_S = 0.002  # a request is answered within about a millisecond
SCENE_S = 0.3  # about how long a scene takes
BOUND_S = TTL_S + 1.5 + 3.0  # the last for two cores that carry all these groups, and more


@attrs.frozen
class Case:
    """Which member dies where; the seed decides all else."""

    scene: str
    place: str
    nth: int
    seed: int

    def __str__(self) -> str:
        return f"{self.scene}/{self.place}/{self.nth}/{self.seed}"

    @classmethod
    def of(cls, text: str) -> "Case":
        scene, place, nth, seed = text.split("/")
        return cls(scene, place, int(nth), int(seed))

    @property
    def phase(self) -> str:
        return next(phase for phase, scenes in PHASES.items() if SCENES[self.scene] in scenes)

    @property
    def doom(self):
        pause = SCENE_S if self.place == ANY_MOMENT else AMID_S
        return self.place, self.nth, random.Random(str(self)).random() * pause


@attrs.frozen
class Outcome:
    """How one case went; a problem is told with all that is needed to see why."""

    case: Case
    died_at: str = ""
    since: float = 0.0
    took: float = 0.0
    judgement: Judgement | None = None
    problem: str = ""


@attrs.frozen
class Stage:
    """What all groups share."""

    members: Members
    endpoint: str
    folder: Path
    _numbers: Iterator[int] = attrs.field(factory=itertools.count)

    def group(self, scene, seed, doom):
        folder = self.folder / str(next(self._numbers))
        folder.mkdir()
        return Doomed(self.members, self.endpoint, folder, scene, seed, doom)


@pytest.fixture
def stage(members, etcd_url, tmp_path_factory):
    return Stage(members, etcd_url, tmp_path_factory.mktemp("kills"))


def rehearse(stage, name):
    """How often the doomed member of a scene comes by each place when nothing kills it."""
    group = stage.group(name, name, HARMLESS)
    try:
        doomed = SCENES[name](group)
        return (doomed.left or doomed.ask("counts"))["counts"]
    finally:
        group.close()


def draw(counts, seed):
    """Every place of every scene once, then those that few scenes come by, until there are enough."""
    crossed = {(scene, place): n for scene, found in counts.items() for place, n in found.items()}
    crossed |= {(scene, ANY_MOMENT): 1 for scene in counts}
    rng = random.Random(seed)
    drawn, of_place = collections.Counter(), collections.Counter()
    cases = []
    while len(cases) < KILLS or len(drawn) < len(crossed):
        pair = min(
            crossed,
            key=lambda pair: (drawn[pair] > 0, of_place[pair[1]], drawn[pair], rng.random()),
        )
        drawn[pair] += 1
        of_place[pair[1]] += 1
        cases.append(Case(*pair, rng.randint(1, crossed[pair]), rng.randrange(1_000_000)))
    rng.shuffle(cases)
    return cases


def run(stage, case):
    group = stage.group(case.scene, str(case), case.doom)
    try:
        doomed = SCENES[case.scene](group)
        if not doomed.ended.is_set():
            doomed.kill()  # it did not come by so often this time
        died_at = doomed.died["place"] if doomed.died else "" if doomed.left else "outright"
        since = doomed.died["at"] if doomed.died else SYSTEM.now()
        took = group.recover(doomed) - since
        judgement = group.history.judge()
        assert judgement.problems == []
        assert judgement.early == ()
        assert judgement.refused == 0, "two have held one role"
        assert judgement.longest_gap() < BOUND_S
    except Exception:
        events = "\n".join(map(str, group.history.events[-40:]))
        return Outcome(case, problem=f"RINK_KILL='{case}'\n{traceback.format_exc()}{events}")
    finally:
        group.close()
    return Outcome(case, died_at, since, took, judgement)


def test_a_process_that_has_said_that_it_dies_says_no_more():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire = Wire(theirs)
        wire.say("gained")
        wire.say_last("dying")
        other = threading.Thread(target=wire.say, args=("gained",), daemon=True)
        other.start()
        other.join(0.1)
        said = [json.loads(line)["what"] for line in ours.recv(4096).splitlines()]
        assert said == ["gained", "dying"]


@pytest.mark.timeout(300)
def test_a_member_may_be_killed_at_each_step_of_a_join_a_proclaim_and_a_hand_over(stage, record):
    alone = os.environ.get("RINK_KILL")
    with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        if alone:
            cases = [Case.of(alone)]
        else:
            counts = pool.map(lambda name: rehearse(stage, name), SCENES)
            seed = int(os.environ.get("RINK_KILL_SEED", "1"))
            cases = draw(dict(zip(SCENES, counts, strict=True)), seed)
        outcomes = list(pool.map(lambda case: run(stage, case), cases))
        first = outcomes[:]
        for again in range(1, 1 if alone else 1 + TRIES):
            outcomes += pool.map(lambda case: run(stage, case), missed(first, outcomes, again))
    failed = [outcome.problem for outcome in outcomes if outcome.problem]
    assert not failed, f"{len(failed)} of {len(cases)} cases\n" + "\n\n".join(failed[:5])
    tell(outcomes)
    if not alone:
        check_counts(outcomes)
        for phase in PHASES:
            judged = [(one.judgement, one.since) for one in outcomes if one.case.phase == phase]
            fault = f"killed at each step of a {phase}: {len(judged)} times"
            record(row_of_all(fault, "1 node", judged, BOUND_S))


def tell(outcomes):
    died = collections.Counter((one.case.phase, one.died_at) for one in outcomes)
    print(f"\n{'died at':24}" + "".join(f"{phase:>11}" for phase in PHASES))
    for place in sorted({place for _, place in died}):
        counts = "".join(f"{died[phase, place] or '':>11}" for phase in PHASES)
        print(f"{place or '(had left before)':24}{counts}")
    took = sorted(one.took for one in outcomes)
    print("FIGURE kills", sum(bool(one.died_at) for one in outcomes))
    print(
        "FIGURE all_held_again_s p50", round(statistics.median(took), 2), "max", round(took[-1], 2)
    )
    print("FIGURE writes", sum(one.judgement.accepted for one in outcomes))


def died_at(outcomes):
    """How often a member died at each place."""
    return collections.Counter(
        one.died_at for one in outcomes if one.died_at not in ("", "outright")
    )


def missed(first, outcomes, again):
    """Cases of the first that missed a place at which too few have died, with other seeds.

    How often a place is come by depends on what else the machine does: two of six at the rarest.
    """
    places = died_at(outcomes)
    return [
        attrs.evolve(one.case, seed=one.case.seed + again)
        for one in first
        if one.died_at != one.case.place and places[one.case.place] < LEAST
    ]


def check_counts(outcomes):
    """Every place was died at, in every phase that comes by it, and hardly a case missed its own."""
    places = died_at(outcomes)
    assert places.total() >= 200
    assert places.total() >= 0.9 * len(outcomes)
    assert min(places.values()) >= LEAST, places
    requests = ("GrantLease", "WriteRecord", "Proclaim", "RevokeLease")
    steps = [when + what for what in requests for when in ("before ", AMID, "after ", "done ")]
    assert set(steps) <= set(places)

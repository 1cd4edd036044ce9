"""Kill members at each step of a join, a proclaim and a hand-over.

The test rehearses each scene once, and counts how often the doomed member passes each place. Then a
seed draws the cases: a scene, a place, and which pass of that place. Each case is one small group
under its own prefix. Many cases run side by side on one etcd.

How often a member passes a place depends on the machine's speed. A busy machine renews leases more
often in one scene, and puts more changes into one batch. So the drawn pass may not happen. Then the
case runs again with the first pass. If that does not happen either, it runs in the first scene that
passes the place, which does so in every run.

A failure names its case. RINK_KILL=<case> runs this case alone. RINK_KILL_SEED sets another seed.
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

SIDE_BY_SIDE = 12  # with more, a start takes seconds on two cores, and counts as a gap
AMID_S = 0.002  # etcd answers a request within about a millisecond
SCENE_S = 0.3  # a scene takes about this long
BOUND_S = TTL_S + 1.5 + 3.0  # the last term is for two cores that carry all these groups, and more

REQUESTS = ("GrantLease", "WriteRecord", "Proclaim", "RevokeLease")
STEPS = {when + what for what in REQUESTS for when in ("before ", AMID, "after ", "done ")}
VIEWS = {"before Listed", "before Changed"}
RENEWALS = {"renewal sent", "renewal answered", "renewal counted"}


@attrs.frozen
class Case:
    """Name a scene, and the pass of a place at which its member dies.

    The seed decides everything else.
    """

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
    """Hold the result of one case; `problem` explains a failure."""

    case: Case
    died_at: str = ""
    since: float = 0.0
    took: float = 0.0
    judgement: Judgement | None = None
    problem: str = ""

    @property
    def hits(self) -> bool:
        """Return whether the member died at the place of its case."""
        return self.died_at == self.case.place


@attrs.frozen
class Stage:
    """Make the groups, and hold what they share."""

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
    """Return how often the doomed member of a scene passes each place.

    It reads its record only if the first keepalive is answered after the create: by chance.
    """
    group = stage.group(name, name, HARMLESS)
    try:
        doomed = SCENES[name](group)
        counts = (doomed.left or doomed.ask("counts"))["counts"] | {ANY_MOMENT: 1}
        return {place: times for place, times in counts.items() if "ReadRecord" not in place}
    finally:
        group.close()


def draw(counts, kills, seed):
    """Draw each place once, then each pair of scene and place, and repeat."""
    passes = {(scene, place): n for scene, row in counts.items() for place, n in row.items()}
    rng = random.Random(seed)
    pairs, scenes, places = (collections.Counter() for _ in range(3))

    def priority(pair):
        scene, place = pair
        return pairs[pair] > 0, places[place], pairs[pair], scenes[scene], rng.random()

    cases = []
    for _ in range(kills):
        pair = scene, place = min(passes, key=priority)
        pairs[pair] += 1
        scenes[scene] += 1
        places[place] += 1
        cases.append(Case(*pair, rng.randint(1, passes[pair]), rng.randrange(1_000_000)))
    rng.shuffle(cases)
    return cases


def run(stage, case):
    """Run one case once, and judge it wherever its member died."""
    group = stage.group(case.scene, str(case), case.doom)
    try:
        doomed = SCENES[case.scene](group)
        # The scene ends with the last gain. What its member does next may pass the place.
        if not doomed.ended.wait(SCENE_S):
            doomed.kill()
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


def run_until_it_hits(stage, case, counts):
    """Run a case until its member dies at its place; return the last outcome.

    `SCENES` is ordered: the first scene that passes a place does so in every run. Later scenes may
    pass it by chance only. For instance, each join has a renewal, and some hand-overs have one.
    """
    first = attrs.evolve(case, nth=1, seed=case.seed + 1)
    reliable = attrs.evolve(first, scene=next(s for s in SCENES if case.place in counts[s]))
    for attempt in (case, first, reliable):
        outcome = run(stage, attempt)
        if outcome.problem or outcome.hits:
            break
    return outcome


def test_process_that_has_said_that_it_dies_says_no_more():
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
@pytest.mark.parametrize(
    ("kills", "least"), [(48, 1), pytest.param(240, 3, marks=pytest.mark.deep)]
)
def test_member_killed_at_each_step_of_a_change_breaks_no_rule(stage, record, kills, least):
    """A member may be killed at each step of a join, proclaim or hand-over."""
    if alone := os.environ.get("RINK_KILL"):
        outcome = run(stage, Case.of(alone))
        assert not outcome.problem, outcome.problem
        tell([outcome])
        return
    seed = int(os.environ.get("RINK_KILL_SEED", "1"))
    with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        rehearsed = pool.map(lambda name: rehearse(stage, name), SCENES)
        counts = dict(zip(SCENES, rehearsed, strict=True))
        cases = draw(counts, kills, seed)
        outcomes = list(pool.map(lambda case: run_until_it_hits(stage, case, counts), cases))
    problems = [outcome.problem for outcome in outcomes if outcome.problem]
    assert not problems, f"{len(problems)} of {kills} cases\n" + "\n\n".join(problems[:5])
    tell(outcomes)
    check_places(outcomes, set().union(*counts.values()), least)
    for phase in PHASES:
        judged = [(one.judgement, one.since) for one in outcomes if one.case.phase == phase]
        fault = f"killed at each step of a {phase}: {len(judged)} times"
        record(row_of_all(fault, "1 node", judged, BOUND_S))


def tell(outcomes):
    """Print how many members died at each place, and how long recovery took."""
    died = collections.Counter((one.case.phase, one.died_at) for one in outcomes)
    print(f"\n{'died at':24}" + "".join(f"{phase:>11}" for phase in PHASES))
    for place in sorted({place for _, place in died}):
        row = "".join(f"{died[phase, place] or '':>11}" for phase in PHASES)
        print(f"{place or '(had left before)':24}{row}")
    took = sorted(one.took for one in outcomes)
    print("FIGURE kills", sum(bool(one.died_at) for one in outcomes))
    print(
        "FIGURE all_held_again_s p50", round(statistics.median(took), 2), "max", round(took[-1], 2)
    )
    print("FIGURE writes", sum(one.judgement.accepted for one in outcomes))


def check_places(outcomes, places, least):
    """Assert that `least` members died at each place.

    At most 5 % may die elsewhere.
    """
    misses = [str(one.case) for one in outcomes if not one.hits]
    assert len(misses) <= len(outcomes) // 20, misses
    deaths = collections.Counter(one.died_at for one in outcomes if one.hits)
    assert min(deaths[place] for place in places) >= least, deaths
    assert not (STEPS | VIEWS | RENEWALS) - places

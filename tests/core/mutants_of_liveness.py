"""Mutants of the core after which a wait never ends, or a role moves without need."""

from __future__ import annotations

from mutant import Mutant, core

ABOUT_LIVENESS = [
    core(
        "a leader that was refused waits for the view alone",
        "leader",
        "if now < self.retry_at and (",
        "if (",
        "leader",
    ),
    core(
        "a lease's second end is an event like the first",
        "node",
        "if lease == tenure.lease and tenure.is_known:",
        "if lease == tenure.lease:",
        "session",
    ),
    core(
        "an own record found under a taken name is not its own",
        "life",
        "if found is None or writer.is_mine(found):",
        "if found is None:",
        "joining",
    ),
    core(
        "a failed request ends the wait for a name",
        "life",
        "if not self._saw_name_taken and writer.taken_by is None:",
        "if True:",
        "joining",
    ),
    core(
        "waits are looked at only when the gate changes",
        "node",
        "            case ev.Nudged():\n                self._look_for_grants = True\n",
        "            case ev.Nudged():\n                pass\n",
        "drains",
        "seed_behaviours",
    ),
    core(
        "whoever lets go may still grant",
        "life",
        "return self.state in (Life.ACTIVE, Life.LEAVING)\n",
        "return self.state in (Life.ACTIVE, Life.LEAVING, Life.LETTING_GO)\n",
        "leaving",
    ),
    core(
        "whoever only lets go says it is active",
        "life",
        "self.state in (Life.LEAVING, Life.LETTING_GO) and not",
        "self.state is Life.LEAVING and not",
        "leaving",
    ),
    core(
        "an old version log is a new start",
        "chronicle",
        "        if last is None:\n            return  #",
        "        if last is None:\n            last = 0  #",
        "chronicle",
    ),
    core(
        "members back under their old ranks are a new group",
        "ranks",
        "starting = not any(name in live for name in situation.ranks)",
        "starting = situation.was_empty or not any(name in live for name in situation.ranks)",
        "ranks",
    ),
    core(
        "a new leader begins the delays anew",
        "node",
        "            self.leads = leads\n",
        "            self.leads = leads\n"
        "            self.chronicle = Chronicle()\n"
        "            self.chronicle.note(self.view, now)\n",
        "chronicle",
    ),
    core(
        "stagger does not wait for the last version to settle",
        "ranks",
        "limit if settled else 0",
        "limit",
        "ranks",
    ),
    core(
        "what came next stays in the status while it is proclaimed",
        "leader",
        "        self.upcoming = None\n",
        "",
        "upcoming",
    ),
    core(
        "a delay that ends before a turn comes hides the turn",
        "ranks",
        "reserved if turns else [*reserved, *delayed.values()]",
        "[*reserved, *delayed.values()]",
        "upcoming",
    ),
    core(
        "every wish is answered by one version",
        "draft",
        "in wishes[:WISHES_AT_ONCE]:",
        "in wishes:",
        "draft",
    ),
    core(
        "ranks of the gone count as room, whoever gets it",
        "draft",
        "without_room(view, freed=False)",
        "without_room(view)",
        "draft",
    ),
    core(
        "pins may take all the room",
        "draft",
        "_bytes_of(plan.ranks) - NAMES_LIMIT_BYTES",
        "_bytes_of(plan.ranks)",
        "draft",
    ),
    core(
        "a version that leaves the share as it is costs a write",
        "writer",
        "self.known != attrs.evolve(desired, version=self.known.version)",
        "self.known != desired",
        "pitfalls",
    ),
    Mutant(
        "pins are placed under the lock",
        "rink/core/foresight.py",
        "() if version is followed else version.pins",
        "()",
        ("engine/test_engine_schemes",),
    ),
    Mutant(
        "delays are counted by what the members' wall clocks say",
        "rink/core/draft.py",
        "first_seen=chronicle.first_seen[member.name, member.create_revision],\n",
        "first_seen=(wall := __import__('datetime').datetime.fromisoformat)\n"
        "                and chronicle.first_seen[view.leader.name, view.leader.create_revision]\n"
        "                + (wall(member.record.joined or '2030-01-01') - wall(view.leader.record.joined or '2030-01-01'))\n"
        "                .total_seconds(),\n",
        ("engine/test_engine_pitfalls",),
    ),
    core(
        "a full memory of ranks is begun anew by whoever fills it",
        "placement",
        "        if not bounded or len(ranks) < REMEMBERED:\n",
        "        if bounded and len(ranks) >= REMEMBERED:\n            ranks.clear()\n        if True:\n",
        "placement",
    ),
]

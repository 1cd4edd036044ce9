"""The mutants: each one rule broken, as a piece of source that is replaced by another.

The old text must be found exactly once in its file: `mutants.py` says so where it is not.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class Mutant:
    """A rule to break, and the files of tests that are to catch it."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def core(what: str, module: str, old: str, new: str, *tests: str) -> Mutant:
    """One in `rink/core`, for tests in `tests/core`."""
    names = tuple(f"core/test_{name}" for name in tests)
    return Mutant(what, f"rink/core/{module}.py", old, new, names)


NAMED_BY_THE_DESIGN = [
    core(
        "grant before the view has reached the own write",
        "grants",
        "if found is None or found.mod_revision != writer.compare:",
        "if found is None:",
        "grants",
    ),
    core(
        "grant with a write unanswered",
        "grants",
        "if not writer.is_settled or writer.known is None:",
        "if writer.known is None:",
        "grants",
    ),
    core(
        "a read settles a write",
        "node",
        "        if not self.writer.is_mine(found):\n",
        "        if self.writer.state is Write.OWED and self.writer.is_mine(found):\n"
        "            self.writer._settle(found.mod_revision, found.record)\n"
        "        if not self.writer.is_mine(found):\n",
        "grants",
    ),
    core(
        "one old share instead of a list",
        "record",
        "return newest + tuple(older), ()",
        "return newest + tuple(older)[:1], ()",
        "grants",
        "record",
    ),
    core(
        "a rejoin forgets what user code still runs",
        "node",
        "                self.writer.begin(event.lease, event.incarnation)\n",
        "                self.writer.begin(event.lease, event.incarnation)\n"
        "                self.table.lost.clear()\n",
        "node",
    ),
    core(
        "a handle registered with a gate that is no longer published",
        "holds",
        "if gate is not self.gate or gate.share is None",
        "if gate.share is None",
        "holds",
    ),
]

ABOUT_OVERLAP = [
    core(
        "the deadline counts from the answer",
        "tenure",
        "max(self.deadline, sent_at + self.granted_ttl",
        "max(self.deadline, now + self.granted_ttl",
        "tenure",
    ),
    core(
        "the first deadline has no margin",
        "tenure",
        "self.deadline = event.sent_at + event.ttl - self.margin",
        "self.deadline = event.sent_at + event.ttl",
        "session",
    ),
    core(
        "a renewed deadline has no margin",
        "tenure",
        "sent_at + self.granted_ttl - self.margin)",
        "sent_at + self.granted_ttl)",
        "pitfalls",
    ),
    core(
        "its own record gone is ignored",
        "node",
        "        if not self.writer.is_mine(found):\n",
        "        if False:\n",
        "session",
    ),
    Mutant(
        "a version proclaimed without its guard",
        "tests/core/small_etcd.py",
        "            and record.create == effect.create_revision\n",
        "",
        ("core/test_leader",),
    ),
    Mutant(
        "a name that is taken is written over",
        "tests/core/small_etcd.py",
        "if (kv.mod if kv else 0) != effect.compare:",
        "if effect.compare and (kv.mod if kv else 0) != effect.compare:",
        ("core/test_joining",),
    ),
    core(
        "a version grants before the own record says so",
        "grants",
        "if writer.known.shares[:1] != (share,):",
        "if False:",
        "grants",
    ),
    core(
        "a revived lease owes no write",
        "node",
        "            self.writer.must_write = True  # R7: nothing is granted before a write is answered\n",
        "",
        "session",
    ),
    core(
        "an answer from before the deadline pays that write",
        "writer",
        "        self.compare, self.known = mod_revision, record\n",
        "        self.compare, self.known = mod_revision, record\n        self.must_write = False\n",
        "session",
    ),
    core(
        "a keepalive after the deadline hides it",
        "node",
        "        self._expire(now)  # a deadline that nobody had time to notice has passed all the same\n",
        "",
        "session",
    ),
    core(
        "TTL 0 is not heard",
        "node",
        "case ev.LeaseEnded(lease=lease) if lease == tenure.lease and tenure.is_known:",
        "case ev.LeaseEnded(lease=lease) if False:",
        "session",
    ),
    core(
        "changes are folded before a list",
        "foresight",
        "if 0 < view.revision < event.revision:",
        "if view.revision < event.revision:",
        "session",
    ),
    core(
        "a list from the past is believed",
        "node",
        "if revision < self.view.revision:",
        "if False:",
        "session",
    ),
    core(
        "a retry asks for another compare",
        "writer",
        "        self.failures += 1\n",
        "        self.failures += 1\n        self.compare += 1\n",
        "writer",
    ),
    core(
        "the else branch counts as applied",
        "writer",
        "if event.applied:",
        "if event.applied or event.found is not None:",
        "session",
    ),
    core(
        "lost roles are not listed in the record",
        "node",
        "draining=draining,",
        "draining=(),",
        "drains",
        "node",
    ),
    core(
        "draining roles claim nothing",
        "claims",
        "draining.update(dict.fromkeys(member.record.draining, member.name))",
        "pass",
        "claims",
        "drains",
    ),
    core(
        "only the newest share of a record claims",
        "claims",
        "for share in member.record.shares:",
        "for share in member.record.shares[:1]:",
        "claims",
        "node",
    ),
    core(
        "only shares of unranked members claim",
        "claims",
        "if share == owned.get(member.name):",
        "if member.name in owned:",
        "claims",
    ),
    core(
        "an unknown scheme claims nothing",
        "claims",
        "everything.append((member.name, reason))",
        "pass",
        "claims",
    ),
    core(
        "an unreadable record claims nothing",
        "claims",
        'everything.append((member.name, f"its record {member.problem}"))',
        "pass",
        "node",
    ),
    core(
        "a lost role's share stays that of its grant",
        "node",
        "        hold.share = share or hold.share  # the newest share that claimed it\n",
        "",
        "grants",
    ),
    core(
        "a role granted anew while its lost handle is out",
        "holds",
        "        if role in self.lost:\n",
        "        if False:\n",
        "holds",
    ),
    core(
        "a grant at the deadline",
        "holds",
        "gate.share is None or now >= self.deadline:",
        "gate.share is None or now > self.deadline:",
        "holds",
    ),
    core(
        "roles lost to a version stay held",
        "node",
        "if not self._has(self.share, hold.role):",
        "if False:",
        "node",
    ),
    core(
        "tokens are version numbers",
        "node",
        "token = self.chronicle.token_base + self.view.revision if version else 0",
        "token = self.chronicle.token_base + version.number if version else 0",
        "drains",
        "seed_behaviours",
    ),
    core(
        "the token base is forgotten with the log",
        "chronicle",
        "        if view.version:\n"
        "            self.token_base = max(self.token_base, view.version.token_base)\n",
        "        self.token_base = view.version.token_base if view.version else 0\n",
        "chronicle",
    ),
    core(
        "records without a lease count",
        "view",
        "for member in self.members.values() if member.lease)",
        "for member in self.members.values())",
        "view",
        "node",
    ),
    core(
        "a lease is taken before the last one is revoked",
        "machines",
        "        LeaseEvent.DISOWN: Lease.REVOKING,\n    },\n    # Every role",
        "        LeaseEvent.DISOWN: Lease.NONE,\n    },\n    # Every role",
        "session",
    ),
    core(
        "a dead record is removed at once",
        "janitor",
        "if since is not None and now >= since + _ttl(member):",
        "if since is not None:",
        "janitor",
    ),
    core(
        "a grace ends for good with the first report",
        "drains",
        "        if grace is not None:\n            out.wake",
        "        if grace is not None and not hold.reported:\n            out.wake",
        "drains",
    ),
    Mutant(
        "a late write compares nothing",
        "rink/engine/requests.py",
        "            (Compare(key, Target.MOD, effect.compare),),\n",
        "            (),\n",
        ("engine/test_engine_faults",),
    ),
]

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
        "a step waits until every wait is placed",
        "rink/engine/engine.py",
        "if turn > 1 and missing:",
        "if False:",
        ("engine/test_engine_schemes",),
    ),
    core(
        "a full memory of ranks is begun anew by whoever fills it",
        "placement",
        "        if not bounded or len(ranks) < REMEMBERED:\n",
        "        if bounded and len(ranks) >= REMEMBERED:\n            ranks.clear()\n        if True:\n",
        "placement",
    ),
]

MUTANTS = [*NAMED_BY_THE_DESIGN, *ABOUT_OVERLAP, *ABOUT_LIVENESS]

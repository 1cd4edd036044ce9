"""Break the core so that two members hold a role, or a token stays low."""

from __future__ import annotations

from mutant import Mutant, core

EXCLUDING_OVERLAP = [
    core(
        "grant before the view has reached the own write",
        "grants",
        "if own is None or own.mod_revision != writer.compare:",
        "if own is None:",
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
        "member",
        "        verdict = self.writer.judge(member, self.writer.compare)\n",
        "        if self.writer.state is Write.OWED and self.writer.is_mine(member):\n"
        "            self.writer._settle(member.mod_revision, member.record)\n"
        "        verdict = self.writer.judge(member, self.writer.compare)\n",
        "grants",
    ),
    core(
        "one old share instead of a list",
        "own_claims",
        "return newest + tuple(older), ()",
        "return newest + tuple(older)[:1], ()",
        "grants",
        "own_claims",
    ),
    core(
        "a rejoin forgets what user code still runs",
        "member_state",
        "                self.writer.begin(event.lease, event.incarnation)\n",
        "                self.writer.begin(event.lease, event.incarnation)\n"
        "                self.table.lost.clear()\n",
        "member",
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
        "lease",
        "max(self.deadline, sent_at + self.granted_ttl",
        "max(self.deadline, now + self.granted_ttl",
        "lease",
    ),
    core(
        "the first deadline has no margin",
        "lease",
        "self.deadline = event.sent_at + event.ttl - self.margin",
        "self.deadline = event.sent_at + event.ttl",
        "session",
    ),
    core(
        "a renewed deadline has no margin",
        "lease",
        "sent_at + self.granted_ttl - self.margin)",
        "sent_at + self.granted_ttl)",
        "pitfalls",
    ),
    core(
        "its own record gone is ignored",
        "member",
        "        if member is None or verdict is Verdict.GONE:\n",
        "        if member is None:\n            return\n        if False:\n",
        "session",
    ),
    Mutant(
        "a version proclaimed without its guard",
        "tests/core/small_etcd.py",
        "            and record.create == effect.create_revision\n",
        "",
        ("core/test_coordinator",),
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
        "member_state",
        "            self.writer.must_write = True  # R7: nothing is granted before a write is "
        "answered\n",
        "",
        "session",
    ),
    core(
        "an answer from before the deadline pays that write",
        "record_writer",
        "        self.compare, self.known = mod_revision, record\n",
        "        self.compare, self.known = mod_revision, record\n"
        "        self.must_write = False\n",
        "session",
    ),
    core(
        "a keepalive after the deadline hides it",
        "member_state",
        "        self._expire(now)  # first: a deadline that no step has noticed has passed all "
        "the same\n",
        "",
        "session",
    ),
    core(
        "TTL 0 is not heard",
        "member_state",
        "case ev.LeaseEnded(lease=lease) if lease == member_lease.id and member_lease.is_known:",
        "case ev.LeaseEnded(lease=lease) if False:",
        "session",
    ),
    core(
        "changes are folded before a list",
        "scheme_prefetch",
        "if 0 < view.revision < event.revision:",
        "if view.revision < event.revision:",
        "session",
    ),
    core(
        "a list from the past is believed",
        "view_state",
        "if listed.revision < self.view.revision:",
        "if False:",
        "session",
    ),
    core(
        "a retry asks for another compare",
        "record_writer",
        "        self.failures += 1\n",
        "        self.failures += 1\n        self.compare += 1\n",
        "record_writer",
    ),
    core(
        "a retry compares with what the view shows",
        "member",
        "            self.out.do(self.writer.send(desired))\n",
        "            is_retry, shown = self.writer.state is Write.OWED, "
        "self.view.members.get(self.name)\n"
        "            effect = self.writer.send(desired)\n"
        "            if is_retry:\n"
        "                compare = shown.mod_revision if shown else 0\n"
        "                effect = do.WriteRecord(effect.attempt, effect.lease, compare, "
        "effect.record)\n"
        "            self.out.do(effect)\n",
        "grants",
    ),
    core(
        "the else branch counts as applied",
        "record_writer",
        "if event.applied:",
        "if event.applied or event.member is not None:",
        "session",
    ),
    core(
        "lost roles are not listed in the record",
        "member",
        "draining=draining,",
        "draining=(),",
        "drains",
        "member",
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
        "member",
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
        "member",
    ),
    core(
        "a lost role's share stays that of its grant",
        "member_state",
        "        hold.share = share or hold.share  # the newest share that claimed it\n",
        "",
        "grants",
    ),
    core(
        "a role granted anew while its lost handle is out",
        "holds",
        "        if role in self.lost or gate",
        "        if gate",
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
        "member",
        "if not self.placement.has(self.share, hold.role):",
        "if False:",
        "member",
    ),
    core(
        "roles of the version before are granted while a newcomer is waited for",
        "member",
        "awaits, version = self.following.awaits, self.following.version",
        'awaits, version = "", self.following.version',
        "handover",
    ),
    core(
        "claims are judged by a version that was deleted",
        "handover",
        "if version is not self.newest:",
        "if version not in (self.newest, self.version):",
        "handover",
    ),
    core(
        "the gate is published before the write that closes it",
        "member",
        "        self._write(now)\n        self._publish(now)\n",
        "        self._publish(now)\n        self._write(now)\n",
        "grants",
    ),
    core(
        "a new list leaves what is gone in the view",
        "scheme_prefetch",
        "return View.listed(event.revision, event.entries)",
        "return view.changed(event.revision, event.entries)",
        "session",
        "member",
    ),
    core(
        "tokens are version numbers",
        "member",
        "token = self.view_state.observed_times.token_base + self.view.revision if version else 0",
        "token = self.view_state.observed_times.token_base + version.number if version else 0",
        "drains",
        "seed_behaviours",
    ),
    core(
        "the token base is forgotten with the log",
        "observed_times",
        "        if view.version:\n"
        "            self.token_base = max(self.token_base, view.version.token_base)\n",
        "        self.token_base = view.version.token_base if view.version else 0\n",
        "observed_times",
    ),
    core(
        "records without a lease count",
        "record_index",
        "for member in members.values() if member.lease)",
        "for member in members.values())",
        "view",
        "member",
    ),
    core(
        "a lease is taken before the last one is revoked",
        "state_tables",
        "        LeaseEvent.DISOWN: LeaseState.REVOKING,\n    },\n    # Every role",
        "        LeaseEvent.DISOWN: LeaseState.NONE,\n    },\n    # Every role",
        "session",
    ),
    core(
        "a dead record is removed at once",
        "janitor",
        "is_dead = since is not None and now >= since + _ttl(member)",
        "is_dead = since is not None",
        "janitor",
    ),
    core(
        "a dead record is removed after one look at its lease",
        "janitor",
        "if is_dead and (not member.lease or content in self._confirmed):",
        "if is_dead:",
        "janitor",
    ),
    core(
        "the default margin is of the TTL asked for, not of the granted one",
        "lease",
        "default_margin(max(self.ttl, self.granted_ttl))",
        "default_margin(self.ttl)",
        "lease",
    ),
    core(
        "a custom scheme known here counts as known to all",
        "schemes",
        "known in map(_rest, listed) or (known not in _custom and can_follow(known))",
        "known in map(_rest, listed) or can_follow(known)",
        "schemes",
    ),
    core(
        "a scheme's name may list its first roles in any order",
        "first_scheme_name",
        "    if name != spelling:",
        "    if set(name) != set(spelling):",
        "first_scheme_name",
    ),
    core(
        "other code under a scheme's name and version is dropped where samples show no difference",
        "schemes",
        "if first.name != full or _code(first.function) != _code(function):",
        "if first.name != full:",
        "schemes",
    ),
    core(
        "a new coordinator lowers the token base",
        "next_version",
        "answers = _RequestAnswers(dict(current.pins) if current else {}, token_base, room)",
        "answers = _RequestAnswers(dict(current.pins) if current else {}, 0, room)",
        "next_version",
        "coordinator",
    ),
    core(
        "a grace ends for good with the first report",
        "drains",
        "        if grace is not None:\n            out.wake",
        "        if grace is not None and not hold.reported:\n            out.wake",
        "drains",
    ),
]

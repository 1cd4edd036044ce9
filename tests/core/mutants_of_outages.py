"""Mutants that are silent about an outage, or say too much of it."""

from __future__ import annotations

from mutant import core, engine, etcd

OUTAGES = [
    core(
        "a late answer of an early request ends an outage",
        "member_state",
        "if self.member_lease.is_alive and now < self.outage.due_at(self.member_lease):",
        "if self.member_lease.is_alive:",
        "outage",
    ),
    core(
        "an outage is not warned of",
        "outage",
        'out.report(Level.WARNING, f"{text}; {left}")',
        "pass",
        "outage",
    ),
    core(
        "an outage is warned of again and again",
        "outage",
        "if self.since is not None or not lease.is_alive",
        "if not lease.is_alive",
        "outage",
    ),
    engine(
        "etcd is blamed where the process did not run",
        "lease_renewal",
        "if stalled_s >= renewal.ttl / RENEWALS_PER_TTL:",
        "if False:",
        "engine/test_engine_lease_renewal",
    ),
    core(
        "a loss that nobody warned of is told without a reason",
        "outage",
        "self.words = self.words or stalled(now - self.due_at(lease))",
        "pass",
        "outage",
    ),
    core(
        "a failed list is warned of beside the outage",
        "member_state",
        "if is_answered or is_long or",
        "if True or",
        "session",
    ),
    core(
        "a list that fails while etcd answers is not warned of",
        "member_state",
        "if is_answered or is_long or",
        "if is_long or",
        "session",
    ),
    core(
        "a loss found late is warned of as if time were left",
        "outage",
        "if not self.due_at(lease) <= now < lease.deadline:",
        "if not self.due_at(lease) <= now:",
        "outage",
    ),
    core(
        "a lost session is not logged as an error",
        "outage",
        'out.report(Level.ERROR, f"{text}: {losses}',
        'str(f"{text}: {losses}',
        "outage",
    ),
    core(
        "a member that is back does not say so",
        "outage",
        'out.report(Level.INFO, f"{away} as incarnation {incarnation[:8]}")',
        "pass",
        "outage",
    ),
    core(
        "only the first outage is told of",
        "outage",
        'self.since, self.words = None, ""',
        'self.words = ""',
        "outage",
    ),
    engine(
        "an outage is told of at the next renewal",
        "lease_renewal",
        "(self.owner.deadline, self.owner.overdue_at)",
        "(self.owner.deadline,)",
        "engine/test_engine_lease_renewal",
    ),
    engine(
        "what a hung engine has to log is not logged",
        "lease_renewal",
        "            renewal.owner.log_pending()\n",
        "            pass\n",
        "faces/test_blocking_only",
    ),
    core(
        "a failure that lasts is logged with every try",
        "outbox",
        "        if failure not in self._warned:\n",
        "        if True:\n",
        "outbox",
    ),
    engine(
        "an outage is told of without a reason",
        "lease_renewal",
        "renewal.owner.overdue(self._why(renewal, stalled_s))",
        'renewal.owner.overdue("")',
        "engine/test_engine_lease_renewal",
    ),
    etcd(
        "the reason of an outage names the endpoint asked last",
        "bidi_call",
        "self._troubles[connection.name] = str(error)",
        "self._troubles = {connection.name: str(error)}",
        "streams",
    ),
    etcd(
        "the reason of an outage that is over is told of the next one",
        "bidi_call",
        "self._troubles.clear()",
        "pass",
        "streams",
    ),
    etcd(
        "the reason of an outage is told in gRPC's words",
        "error_map",
        "_meaning(words) or code.name",
        "words or code.name",
        "faults",
    ),
]

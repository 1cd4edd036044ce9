"""Mutants of the core that believe in a history of etcd which is gone (R11)."""

from __future__ import annotations

from mutant import core

HISTORY = [
    core(
        "renewals of a new call count before the own record is read",
        "renewals",
        "if call == self.call or not has_record:",
        "if True:",
        "renewals",
    ),
    core(
        "an earlier own record lets renewals count",
        "knowledge",
        "elif found.mod_revision < event.mod_revision:",
        "elif False:",
        "renewals",
    ),
    core(
        "the own record as read under an earlier call lets renewals count",
        "renewals",
        "return event.call == self.new_call",
        "return self.new_call is not None",
        "renewals",
    ),
    core(
        "renewals that were held back are forgotten",
        "knowledge",
        "            self._renew(now, self.renewals.prove())\n",
        "            self.renewals.prove()\n",
        "renewals",
    ),
    core(
        "a new history goes on with the token base of the old one",
        "sight",
        "        self.chronicle = Chronicle()\n",
        "        self.chronicle = Chronicle(token_base=self.chronicle.token_base)\n",
        "one_history",
    ),
    core(
        "an answer proves a change of history that a list has proven",
        "knowledge",
        "elif answer is Answer.OLDER and not self._is_disproved():",
        "elif answer is Answer.OLDER:",
        "one_history",
    ),
    core(
        "the view lives on when the session is lost",
        "knowledge",
        "        self._throw_view_away()\n        self.outage.begun(now)\n",
        "        self.outage.begun(now)\n",
        "one_history",
    ),
    core(
        "a list asked for before the view was thrown away is believed",
        "sight",
        "return not isinstance(event, Listed) or event.wanted >= self.lists_wanted",
        "return True",
        "one_history",
    ),
    core(
        "an own record as of an earlier revision is met with silence",
        "node",
        "elif found and found.mod_revision < self.writer.compare and not self._is_disproved():",
        "elif False:",
        "one_history",
    ),
    core(
        "an answer with an earlier own record settles",
        "writer",
        "is_older = event.found.mod_revision < self.compare",
        "is_older = False",
        "one_history",
    ),
    core(
        "a version written anew proves nothing",
        "history",
        "if found is not None and found.mod_revision != self.mod_revision:",
        "if False:",
        "one_history",
    ),
    core(
        "lower version numbers prove nothing",
        "history",
        "if newest < self.number:",
        "if False:",
        "one_history",
    ),
    core(
        "a new history is granted in at once",
        "history",
        "if now < self.grants_from:",
        "if False:",
        "one_history",
    ),
    core(
        "a new history waits for the own ttl only",
        "history",
        "self.ttl = max([self.ttl, *(record.ttl for record in records)])",
        "self.ttl = min([record.ttl for record in records], default=0)",
        "one_history",
    ),
    core(
        "a new history gives lower tokens",
        "history",
        "self.token_floor = max(self.token_floor, self.token)",
        "pass",
        "one_history",
    ),
    core(
        "an older own record is found again with every list",
        "knowledge",
        "self._disproved = self.writer.incarnation",
        "pass",
        "one_history",
    ),
    core(
        "a change of history that is told after the lease ended is passed over",
        "knowledge",
        "case ev.HistoryChanged() if not self._is_disproved():",
        "case ev.HistoryChanged() if self.tenure.is_held:",
        "one_history",
    ),
    core(
        "a loss waits for the log",
        "outbox",
        "sorted(self.effects, key=lambda one: not isinstance(one, Lose))",
        "self.effects",
        "outage",
    ),
]

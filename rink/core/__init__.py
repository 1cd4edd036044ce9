"""Decide everything about one member, without I/O, clock, threads or logs.

The engine steps a member by two halves, `Node.step_own` and `Node.step_group`. `events` go in and
`effects` come out, through the `outbox`.

Where to look:

* `member` derives the consequences for the member's roles from the state in `member_state`.
* `lifecycle` leads from join to leave, and `lease` and `renewals` keep the deadline. `state_tables`
  has their states and transitions.
* `member_record` defines the record, `own_claims` derives its claims, and `record_writer`
  writes it.
* `view` folds the keys in etcd, as `values`, `codec` and `keys` define them. `view_state` keeps the
  view, and `record_index` and `unsettled_records` derive facts from it. `observed_times` and
  `etcd_history` remember facts that no view contains.
* `claims`, `grants`, `holds` and `waits` say who may hold a role, and `why_not_held` says why not.
  `handover` chooses the version that the member follows.
* `coordinator` proclaims versions, which `next_version` and `ranks` plan.
* `schemes`, with `hashing` and `first_scheme_name`, map a role to a rank. `placement` remembers the
  ranks, and `scheme_prefetch` computes them before a step.
* `drains` and `outage` report trouble, and `janitor` removes dead records. `wording` names records.
* `settings` holds the user's settings, and `retry_delay` says when to try again.
"""

"""The pure core: no I/O, no clock, no threads, no logging.

The engine steps it by two halves: `Node.step_own` and `Node.step_group`.

Where to look: `node` is one member, and `knowledge` what it knows. They drive `writer` (its
record), `member_lease` and `renewals` (the lease), `view_state` with `history` (the view), `handover` (the
version that is followed), `life` (join to leave), `coordinator` with `draft` and `ranks` (the next
version), `observed_times` (since when), `outage`, `janitor` and `drains`. `grants`, `claims` and `holds`
say who may hold a role, and `record` what this member's record must claim. `view` folds what lies
in etcd; `values`, `codec` and `keys` say how it lies there. `schemes` with `hashing` and
`placement` map a role to a rank, for a step as `foresight` knows before it; `machines` has the
states and transitions as data. `events` go in and `effects` come out, by the `outbox`; `settings`
is what the user chose, `backoff` when to try again.
"""

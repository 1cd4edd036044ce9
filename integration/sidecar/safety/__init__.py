"""Check the safety of sidecars, as their clients see it.

Faults strike programs that write to a guarded and an unguarded resource.

* `program`: one program beside a sidecar, in its own process; the standard library only.
* `running`: starts programs and sidecars, and reads what programs report.
* `stage`: one run: programs on two sidecars, their history, and its verdict.
* `faults`: the faults, as generators that yield pauses.
* `lanes`: several groups side by side on one etcd. `run`: the command. `page`: the table.
"""

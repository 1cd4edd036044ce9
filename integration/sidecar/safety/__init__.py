"""Safety as clients of a sidecar see it: faults, programs, a resource that is guarded and one that is not.

* `program`: one program beside a sidecar, in its own process; the standard library only.
* `running`: starts programs and sidecars, and reads what programs report.
* `stage`: one run: programs on two sidecars, their history, and its verdict.
* `faults`: what is done to them, as generators that yield pauses.
* `lanes`: several groups side by side on one etcd. `run`: the command. `page`: the table.
"""

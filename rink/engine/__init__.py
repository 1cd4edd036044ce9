"""Connect the pure core with etcd, the clock, the log and threads.

Each joined Rink has one engine. `engine` runs the member, and `stepper` steps its core.
`group_watch` brings the view, and `requests` turns the core's requests into etcd's transactions.
`request_threads` has the threads for blocking requests. `lease_renewal` renews the leases of a
session. `callbacks` runs user code. `member_log` writes the member's log lines. `caller_context`
finds out where a call comes from. `step_queue` lets the engines of a process step one at a time.
`last_waits` ends the waits of a member that leaves. All of them wait on `clock` and `signals`.
"""

"""Connect the pure core with etcd, the clock, the log and threads.

Each joined Rink has one engine. `engine` runs the member, and `stepper` steps its core.
`group_watch` brings the view, and `requests` turns the core's requests into etcd's transactions.
`lease_renewal` renews the leases of a session. All modules wait on `clock` and `signals`.
"""

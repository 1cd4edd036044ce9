"""Our thin client of etcd: endpoints and failover, transactions, watches, leases, TLS and users.

`api` is what the engine asks for, and `client` gives it. A request goes through `transport` over
one of the `connections`; `stream` keeps `watch` and `keepalive` up over all that can happen to a
server; `guard` notices another cluster or one that was set back; `faults` says what went wrong.
"""

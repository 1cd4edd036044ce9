"""Our thin client of etcd: endpoints and failover, transactions, watches, leases, TLS and users.

`api` is what the engine asks for, and `client` gives it. A request goes through `transport` over
one of the `connections`; `stream` keeps `watch` and `keepalive` up over all that can happen to a
server; `guard` notices another cluster or one that was set back; `faults` says what went wrong.
"""

import os

# gRPC logs to stderr by itself, such as failed handshakes, which are raised as errors here. It
# reads this when it is imported, which the modules of this package do.
if "GRPC_TRACE" not in os.environ:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")

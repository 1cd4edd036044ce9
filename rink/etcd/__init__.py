"""Connect to etcd: failover, transactions, watches, leases, TLS and users.

`api` is the interface that the engine uses, and `client` implements it. A request goes through
`transport` over one of the `connections`. `bidi_call` keeps `watch` and `keepalive` open when
servers fail. `cluster_identity` notices another cluster, or one whose history went back.
`error_map` turns errors of gRPC and etcd into Rink's.
"""

import os

# gRPC logs to stderr, for example failed handshakes, which are raised as errors here. It reads this
# variable when the modules of this package import it.
if "GRPC_TRACE" not in os.environ:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")

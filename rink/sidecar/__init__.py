"""Hold roles for programs in any language, through a small HTTP API.

The rooms, from the inside out:

* `turns`, `effects`: whose turn a role is, and the ends that consumers were told; pure.
* `service`, `membership`: the turns on an event loop, beside one member of a group.
* `api`, `stream`, `bodies`: the calls of consumers. `access`: who may call. `public`: probes.
* `listeners`: sockets and servers. `files`: ends that a shell can read.
"""

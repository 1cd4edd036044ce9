"""Hold roles for programs in any language, through a small HTTP API.

The modules, from the inside out:

* `consumer_turns`, `consumers`, `effects`: which consumer has the turn of a role, and until when.
  They read no clock and do no I/O.
* `service`, `membership`: the turns on an event loop, and the member of the group.
* `http_api`, `event_stream`, `bodies`, `answers`: the calls of consumers. `access`: refusals.
* `public`, `metrics`, `page`: probes, metrics and the page for people.
* `listeners`: sockets and servers. `role_files`: ends that a shell can read. `pod_label`,
  `pod_labeller`, `pod_api`: labels of the own pod. `program`: start and end.
"""

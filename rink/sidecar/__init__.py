"""Hold roles for programs in any language, through a small HTTP API.

The modules, from the inside out:

* `consumer_turns`, `consumers`, `effects`: decide which consumer has the turn of a role, and until
  which time. They read no clock and do no I/O.
* `service`, `membership`: run the turns on an event loop, and the member of the group.
* `http_api`, `event_stream`, `bodies`, `answers`: answer consumers. `access`: refuses requests.
* `public`, `metrics`, `page`: show probes, metrics and the page for people.
* `listeners`: opens sockets. `role_files`: writes ends for shells. `pod_label`, `pod_labeller`,
  `pod_api`: label the own pod. `program`: starts and ends the sidecar.
"""

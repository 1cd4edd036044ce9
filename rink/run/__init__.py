"""Run a command while a role is held: `rink run`.

`supervisor` holds the role and speaks to etcd. `guard` is a file of its own: the parent process of
the command, which kills it in time even if `rink run` is stopped or killed.
"""

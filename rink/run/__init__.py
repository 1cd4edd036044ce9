"""Run a command while a role is held: `rink run`.

`supervisor` waits for the role as a `member` of the group, and carries out one `command_run` after
the other while it holds the role. `guard` is a file of its own: the parent process of
the command, which kills it in time even if `rink run` is stopped or killed.
"""

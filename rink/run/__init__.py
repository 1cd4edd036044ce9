"""Run a command while a role is held: `rink run`.

`supervisor` waits for the role as a member of the group (`membership`), and executes one
`command_run` after another while it holds the role. `command_guard` is a separate program, the
parent process of the command. It kills the command in time even if `rink run` is stopped or killed.
"""

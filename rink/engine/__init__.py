"""Where the pure core meets etcd, the clock, the log and threads; one engine per joined Rink.

`engine` runs a member, `follower` brings its view, `lessor` keeps the leases of a session, `calls`
carries blocking requests, `callbacks` runs user code, `callers` tells who calls, `turns` has the
engines of a process step one by one, `clock` and `signals` are what all of them wait on.
"""

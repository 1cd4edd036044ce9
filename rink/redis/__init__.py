"""Reach Redis through clients, Lua scripts, error mapping and retries.

Nothing in this package knows streams.
"""

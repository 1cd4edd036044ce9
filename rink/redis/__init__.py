"""Reach Redis through clients, Lua scripts, error mapping and retries.

This package knows nothing of streams.
"""

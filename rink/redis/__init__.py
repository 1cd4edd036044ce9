"""Reach Redis: clients, Lua scripts, errors and retries. It knows no streams."""

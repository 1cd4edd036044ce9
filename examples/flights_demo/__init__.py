"""Hold the parts of `examples/flights.py`.

Processes that come, freeze and die share real work.
"""

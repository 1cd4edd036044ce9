"""Hold the parts of `examples/streams.py`.

A stream of flights goes through workers that come, freeze and die.
"""

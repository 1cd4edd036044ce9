"""Hold the parts of `examples/pipeline.py`.

Flights go through Spark, by drivers that are killed, frozen and thawed.
"""

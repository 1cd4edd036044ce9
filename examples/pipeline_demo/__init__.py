"""The parts of `examples/pipeline.py`: flights through Spark, by drivers that are killed, frozen and thawed."""

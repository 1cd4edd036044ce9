"""The parts of `examples/streams.py`: a stream of flights through workers that come, freeze and die."""

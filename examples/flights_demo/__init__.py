"""The parts of `examples/flights.py`: real work shared by processes that come, freeze and die."""

"""Send the flights into the stream, up to the share that may flow by now."""

from common import sender

from pipeline_demo.flights import flights, read_flights
from pipeline_demo.here import DriverHere


def advance(due: float, step: float, limit: float) -> float:
    """Return how many flights are due; never more than the limit."""
    return min(due + step, limit)


if __name__ == "__main__":
    sender.main(DriverHere.read(), flights, read_flights, advance)

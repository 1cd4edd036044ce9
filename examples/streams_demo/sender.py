"""Send the flights into the stream while the workers are at it."""

from common import sender

from streams_demo.app import here, legs
from streams_demo.legs import read_legs

SLOWLY = 0.1  # of the pace beyond the limit: each mishap must meet a stream that flows


def advance(due: float, step: float, limit: float) -> float:
    """Return how many legs are due; with a limit of 0, none."""
    if due < limit:
        return due + step
    return due + SLOWLY * step if limit else due


if __name__ == "__main__":
    sender.main(here, legs, read_legs, advance)

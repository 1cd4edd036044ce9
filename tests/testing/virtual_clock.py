class VirtualClock:
    """Time that moves when told."""

    def __init__(self):
        self.seconds = 1000.0

    def now(self):
        return self.seconds

class VirtualClock:
    """A clock that moves only when a test moves it."""

    def __init__(self):
        self.seconds = 1000.0

    def now(self):
        return self.seconds

"""Imitate a role, for tests of one owner."""

import asyncio


class Held:
    """Imitate a role that the test gives and takes away."""

    def __init__(self, token):
        self.role, self.token = "legs/0", token
        self.is_held, self.lost = True, asyncio.Event()

    def lose(self):
        self.is_held = False
        self.lost.set()

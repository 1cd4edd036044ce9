"""Let tests move the clock and the member of a sidecar's turns."""

from rink.sidecar import effects as do
from rink.sidecar.consumer_turns import ConsumerTurns
from rink.sidecar.consumers import Consumer

HOLD_MS, GRACE_MS = 9_000, 30_000


class Story:
    """Run turns with a member that grants all wanted roles, and a clock.

    The test moves the clock.
    """

    def __init__(self, grace_ms=GRACE_MS):
        self.turns = ConsumerTurns(HOLD_MS, grace_ms)
        self.now = 100_000
        self.token = 6
        self.said = []
        self.live()

    def live(self, lease=1, ahead_ms=15_000):
        self.turns.session(lease, self.now + ahead_ms)

    def consumer(self, *roles, name="web", stream=True, **how):
        consumer = Consumer(name, f"secret-{name}", **how)
        consumer.calls = 0 if stream else 1
        self.turns.hold(consumer, list(roles), self.now)
        if stream:
            self.turns.open_stream(consumer, self.now)
        return consumer

    def grant(self, role):
        self.token += 1
        return self.turns.granted(role, self.token, self.now)

    def lose(self, turn):
        self.turns.lost(turn, "version 7 changed the owner", self.now)

    def release(self, consumer, role, token=None):
        return self.turns.release(consumer, role, token, self.now)

    def sleep(self, ms):
        """Pass time while the member's session is renewed."""
        end = self.now + ms
        while self.now < end:
            self.now = min(end, self.turns.step(self.now) or end)
            self.live(self.turns._lease)
        self.turns.step(end)

    def effects(self, kind=object):
        self.said += self.turns.take_effects()
        found = [effect for effect in self.said if isinstance(effect, kind)]
        self.said = []
        return found

    def has_let_go(self):
        return [effect.role for effect in self.effects(do.LetGo)]

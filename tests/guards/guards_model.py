"""Compare each guard with a dict, over random interleavings.

The interleavings have drivers, batches, crashes and replays.
"""

from collections import Counter

from guards_worlds import batch, fence, what_of
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rink.errors import StaleToken, StateError

TOKENS = st.sampled_from([1, 9, 10, 2**53, 2**53 + 1, 2**62, 2**62 + 1, 2**63 - 1])
NUMBERS = st.integers(0, 3)
QUERIES = st.sampled_from(["a", "b/ü"])
PARTS = st.sampled_from([2, 2, 2, 3])
FATES = st.lists(st.sampled_from(["well", "well", "well", "crash", "raised", "twice"]), max_size=3)


class Model:
    """The expected state, by the rules of rink.guards."""

    def __init__(self, publishes_at_finish):
        self.at_finish = publishes_at_finish
        self.fence = 0
        self.parts = {}
        self.marks = {}
        self.contents = Counter()

    def raise_fence(self, token):
        if token < self.fence:
            raise StaleToken
        self.fence = token

    def begin(self, token, one):
        if token < self.fence:
            raise StaleToken
        if self.parts.get(one.query, one.parts) != one.parts:
            raise StateError  # nothing is changed by it
        self.fence = token
        if not self.at_finish:
            self.parts[one.query] = one.parts

    def is_written(self, one, number):
        return self.marks.get((one.query, number), -1) >= one.number

    def write(self, token, one, number):
        if token < self.fence:
            raise StaleToken
        if not self.at_finish and not self.is_written(one, number):
            self._written(one, number)

    def finish(self, token, one):
        if token < self.fence:
            raise StaleToken
        if self.at_finish:
            for number in range(one.parts):
                if not self.is_written(one, number):
                    self._written(one, number)
            self.parts.setdefault(one.query, one.parts)

    def _written(self, one, number):
        self.marks[one.query, number] = one.number
        self.contents[what_of(one, number)] += 1


class Crash(Exception):  # noqa: N818 - not an error of Rink
    """Raised as if the process that writes a part were killed."""


def outcome(call, *given):
    """Return a call's value and no error, or no value and the kind of error."""
    try:
        return call(*given), None
    except (StaleToken, StateError, Crash) as error:
        return None, type(error)


def machine_of(make_world):
    """Return a state machine over a new world for each example."""

    # Each rule makes the same call on the guard and on the model, and compares the kind of error.
    # The invariant compares the written contents after each rule. So the guard accepts exactly the
    # writes that the model accepts. A write that ends in a crash is not made on the model, since it
    # must leave nothing.
    class Machine(RuleBasedStateMachine):
        def __init__(self):
            super().__init__()
            self.world = make_world()
            self.model = Model(self.world.publishes_at_finish)

        def teardown(self):
            self.world.close()

        @rule(token=TOKENS)
        def raise_fence(self, token):
            _, expected = outcome(self.model.raise_fence, token)
            assert outcome(self.world.guard.raise_fence, fence(token))[1] is expected

        @rule(token=TOKENS, query=QUERIES, number=NUMBERS, parts=PARTS, fates=FATES)
        def write_batch(self, token, query, number, parts, fates):
            one = batch(number, query, parts)
            _, expected = outcome(self.model.begin, token, one)
            assert outcome(self.world.guard.begin, fence(token), one)[1] is expected
            if expected:
                return
            results = []
            for part in range(one.parts):
                fate = fates[part] if part < len(fates) else "well"
                for _ in range(2 if fate == "twice" else 1):
                    result, ended = self._write(token, one, part, fate)
                if ended:
                    return
                results.append(result)
            outcome(self.model.finish, token, one)
            self.world.guard.finish(fence(token), one, results)

        def _write(self, token, one, number, fate):
            raises = fate == "raised" and self.world.raises_inside and token < 2**63 - 1
            was_written = self.model.is_written(one, number)

            def write():
                part = self.world.guard.part(fence(token), one, number)
                with part as step:
                    assert (step is None) == was_written
                    if step is None:
                        return None
                    self.world.write(step, one, number)
                    if raises:
                        self.world.guard.raise_fence(fence(token + 1))
                        self.model.raise_fence(token + 1)
                    if fate == "crash":
                        raise Crash
                return part.result

            result, error = outcome(write)
            if fate == "crash" and not was_written:
                expected = Crash
            else:
                _, expected = outcome(self.model.write, token, one, number)
            assert error is expected
            return result, error

        @invariant()
        def contents_are_the_models(self):
            assert self.world.contents() == self.model.contents

    return Machine

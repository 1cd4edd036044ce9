"""Raise in a signal handler between any two steps: nothing stays counted.

Ctrl-C is one such handler, `sys.exit()` in a SIGTERM handler another. Here the exception comes at
each step of Rink's in turn, until a call is over before it comes. A step is where Python looks for
signals: after a call, at the begin of a function and of each round of a loop.
"""

import contextlib
import dis
import gc
import itertools
import math
import sys
import threading
from pathlib import Path

import pytest
from faces_support import LONG_S, engine_of, owned_by, records, until, within

import rink
from rink.engine import stepper

PACKAGE = str(Path(rink.__file__).parent)


LOOKS_FOR_SIGNALS = {"CALL", "CALL_FUNCTION_EX", "CALL_KW", "RESUME", "JUMP_BACKWARD"}


def ctrl_c():
    raise KeyboardInterrupt


def in_a_finalizer(frame):
    """Python itself ignores errors that are raised there."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


class Interrupter:
    """Run a handler at one step of Rink's or of the threading module's code."""

    def __init__(self, at, handler=ctrl_c, files=(PACKAGE,)):
        self._at = at
        self._handler = handler
        self._files = files

    def __enter__(self):
        self._before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # Python 3.12 asks for it before the trace begins
        sys.settrace(self._call)

    def __exit__(self, *_):
        sys.settrace(self._before)

    def _call(self, frame, _what, _arg):
        code = frame.f_code
        if not code.co_filename.startswith(self._files) or in_a_finalizer(frame):
            return None
        frame.f_trace_opcodes = True
        before = ""

        def look(frame, what, _arg):
            nonlocal before
            if what == "opcode":
                now = dis.opname[code.co_code[frame.f_lasti]]
                if before in LOOKS_FOR_SIGNALS and now != "PUSH_EXC_INFO":  # the call raised
                    self._step()
                before = now
            return look

        return look

    def _step(self):
        self._at -= 1
        if self._at < 0:
            sys.settrace(None)
            self._handler()


def get_and_release(member, mine, _foreign):
    role = member.get_role(mine)
    role.release()


def get_in_a_with(member, mine, _foreign):
    with member.get_role(mine) as role:
        role.raise_if_lost()


def get_what_is_anothers(member, _mine, foreign):
    assert member.get_role(foreign) is None


def await_what_is_free(member, mine, _foreign):
    with member.await_role(mine, LONG_S):
        pass


def await_what_is_anothers(member, _mine, foreign):
    with contextlib.suppress(rink.RoleTimeout):
        member.await_role(foreign, 0.0).release()


def wait_for_the_loss(member, mine, _foreign):
    with member.get_role(mine) as role:
        role.lost.wait(0.001)


def follow_two(member, mine, foreign):
    with member.roles([mine, foreign]) as roles:
        dict(roles.held)


CALLS = [
    get_and_release,
    get_in_a_with,
    get_what_is_anothers,
    await_what_is_free,
    await_what_is_anothers,
    wait_for_the_loss,
    follow_two,
]


@pytest.mark.filterwarnings("ignore:.*garbage-collected:ResourceWarning")
@pytest.mark.parametrize(
    "call",
    [*CALLS[:-1], pytest.param(follow_two, marks=pytest.mark.deep)],  # half a minute
)
def test_exception_at_any_step_leaves_no_handle_and_no_wait(blocking, call):
    member, _ = blocking.pair()
    mine, foreign = owned_by(0, 2), owned_by(1, 2)
    table = engine_of(member).table
    with Interrupter(math.inf):  # Python 3.13 tells of a function's steps from its second call on
        call(member, mine, foreign)
    for step in itertools.count():
        try:
            with Interrupter(step):
                call(member, mine, foreign)
        except KeyboardInterrupt:
            pass
        else:
            break
        if table.roles:
            gc.collect()
            until(member, lambda: not table.roles)
        assert engine_of(member).failure is None
    assert step > 0, "nothing was interrupted"
    with within(LONG_S):
        member.leave()


@pytest.mark.parametrize("call", CALLS)
def test_handler_that_calls_rink_during_a_call_is_refused(blocking, call):
    member, _ = blocking.pair()
    mine, foreign = owned_by(0, 2), owned_by(1, 2)
    kept = member.get_role(mine)
    answers = []
    with Interrupter(math.inf):
        call(member, mine, foreign)

    def handler():
        for ask in (
            lambda: member.get_role(mine).release(),
            lambda: member.status().held,
            lambda: member.await_role(mine, LONG_S).release(),
            lambda: kept.lost.wait(0.0),
        ):
            try:
                ask()
            except rink.WrongThreadError as error:
                answers.append(str(error))
            else:
                answers.append("")

    with within(LONG_S):
        for step in itertools.count():
            before = len(answers)
            with Interrupter(step, handler):
                call(member, mine, foreign)
            if len(answers) == before:
                break
    kept.release()
    assert "" in answers
    if call is not get_what_is_anothers and sys.version_info < (3, 13):
        # The other call is the short way, which takes no lock; 3.13 tells of fewer steps.
        assert any("a signal handler called it in the middle of another call" in a for a in answers)


def test_exception_at_any_step_of_a_join_leaves_no_member_and_no_wait(blocking):
    for step in itertools.count():
        session = blocking.session()
        member = blocking.make("a", session=session)
        try:
            with Interrupter(step):
                member.join()
        except KeyboardInterrupt:
            with within(LONG_S):
                member.leave()
                session.close()
            assert not records(blocking)
        else:
            break
    assert step > 20
    member.leave()


def test_handler_may_leave_in_the_midst_of_a_wait_for_the_loss(blocking):
    answers = []

    def handler():
        try:
            member.leave()
        except rink.WrongThreadError:
            answers.append("refused")
        else:
            answers.append("left")

    for step in range(0, 1000, 3):
        group = f"g{step}"  # of its own: its record stays until the lease has run out
        member = blocking.make("a", group=group, leave_timeout=0.02).join()
        before = len(answers)
        with within(LONG_S), member.await_role("x", LONG_S) as role, Interrupter(step, handler):
            role.lost.wait(0.001)
        member.leave()
        if len(answers) == before:
            break
    assert "left" in answers
    assert "refused" in answers or sys.version_info >= (3, 13)  # which tells of fewer steps


def test_handler_may_release_in_the_midst_of_a_wait_for_the_loss(blocking):
    """Its release sets `lost`, which must not need a lock of the wait."""
    member, released = blocking.join("a"), []
    for step in range(1000):
        role = member.await_role("x", LONG_S)
        before = len(released)

        def handler(role=role):
            released.append(role.release())

        with within(LONG_S), Interrupter(step, handler, (PACKAGE, threading.__file__)):
            role.lost.wait(0.001)
        role.release()
        if len(released) == before:
            break
    assert released
    until(member, lambda: not member.status().held)  # amid a call, a handler releases by message


@pytest.mark.parametrize("step", range(12))
def test_handler_may_leave_while_a_role_set_looks_for_a_change(blocking, step):
    member = blocking.make("a", leave_timeout=0.05).join()
    with member.roles(["x"]) as roles:
        changes = iter(roles)
        assert next(changes).gained
        with within(LONG_S), Interrupter(step, member.leave):
            told = [change.lost for change in changes]
    assert told == [True]


def test_group_can_be_left_while_another_engine_waits_for_its_lock(blocking):
    """A handler may come in the middle of a call of the other group."""
    a, b = blocking.make("a").join(), blocking.make("b", group="h").join()
    engine = engine_of(a)
    with within(LONG_S), engine.lock:
        engine.nudge()
        until(b, lambda: stepper.step_queue.is_taken)
        b.leave()
    a.leave()

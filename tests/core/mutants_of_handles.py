"""Mutants of leaving and of handles: what stays claimed, what is let go of, and who is told."""

from __future__ import annotations

from mutant import Mutant, core, engine

LEAVING = [
    core(
        "a leave whose time is over revokes what is still held",
        "life",
        "                self._on(LifeEvent.OVERRUN)\n"
        "                self.run_out_at = now + LAST_WRITE_TIMEOUT_S\n",
        "                self._on(LifeEvent.RELEASED)\n"
        "                self.revoke_until = now + self.leave_timeout\n",
        "running_out",
    ),
    core(
        "the last record claims nothing",
        "node",
        "        shares, draining = claims_of(share, self.table.draining, self.placement, limit)\n",
        "        drains_ = self.table.draining if self.living.wants_share else []\n"
        "        shares, draining = claims_of(share, drains_, self.placement, limit)\n",
        "running_out",
    ),
    core(
        "the last record keeps the share",
        "life",
        "        return self.state is not Life.RUNNING_OUT\n",
        "        return True\n",
        "running_out",
    ),
    core(
        "the last record is not waited for",
        "life",
        "if tenure.is_alive and not is_written and now < self.run_out_at:",
        "if False:",
        "running_out",
    ),
    core(
        "the last record is waited for for ever",
        "life",
        "if tenure.is_alive and not is_written and now < self.run_out_at:",
        "if tenure.is_alive and not is_written:",
        "running_out",
    ),
    core(
        "a member that is gone goes on renewing its lease",
        "life",
        "            out.do(tenure.abandon())\n",
        "            tenure.abandon()\n",
        "running_out",
    ),
    core(
        "whoever writes its last record says it is active",
        "life",
        "if leaves or self.state is Life.RUNNING_OUT else",
        "if leaves else",
        "running_out",
    ),
    core(
        "handles are waited for from when the leave was asked for",
        "life",
        "self.release_until = now + self.release_within  # counted",
        "self.release_until = self.leave_until  # counted",
        "running_out",
    ),
    core(
        "a second leave lengthens the wait of the first",
        "life",
        "            self.release_until = min(self.release_until, now + self.release_within)\n",
        "            self.release_until = now + self.release_within\n",
        "running_out",
    ),
    core(
        "a leave that waits for ever is bounded",
        "life",
        "self.leave_timeout if bound is None else bound\n",
        "min(self.leave_timeout, bound or self.leave_timeout)\n",
        "running_out",
    ),
    core(
        "whoever runs out may keep its rank, and seems to coordinate",
        "life",
        "return Phase.LEAVING if leaves or self.state is Life.RUNNING_OUT else Phase.ACTIVE",
        "leaves |= self.state is Life.RUNNING_OUT and not self.keeps_rank\n"
        "        return Phase.LEAVING if leaves else Phase.ACTIVE",
        "running_out",
    ),
    core(
        "the lease is left to run out where no record claims anything",
        "life",
        "if not (tenure.is_held and writer.exists):",
        "if not tenure.is_held:",
        "running_out",
    ),
    core(
        "a leaver waits anew with every step once ranks have changed",
        "life",
        "            self._ranks_when_leaving = view.version.ranks\n            self.leave",
        "            self.leave",
        "leaving",
    ),
    core(
        "a leave with a bound waits for a version as long as without",
        "life",
        "return min(self.leave_timeout, self.release_within)",
        "return self.leave_timeout",
        "running_out",
    ),
]

HANDLES = [
    Mutant(
        "a released handle is never lost",
        "rink/roles.py",
        "        self._end()\n        engine.release(self._handle)\n",
        "        self._released = RELEASED\n        engine.release(self._handle)\n",
        ("faces/test_face_lost",),
    ),
    Mutant(
        "the engine hears of a release before the helpers of its handle",
        "rink/roles.py",
        "        self._end()\n        engine.release(self._handle)\n",
        "        engine.release(self._handle)\n        self._end()\n",
        ("faces/test_face_lost",),
    ),
    Mutant(
        "a handle that is asked late does not know that it is over",
        "rink/roles.py",
        "if self._released or self._hold.lost_at is not None:\n                    handle",
        "if self._hold.lost_at is not None:\n                    handle",
        ("faces/test_face_lost",),
    ),
    Mutant(
        "a release hides the loss before it",
        "rink/roles.py",
        "self._released or (hold and hold.lost_because) or RELEASED",
        "self._released or RELEASED",
        ("faces/test_face_lost",),
    ),
    Mutant(
        "a loss hides the release before it",
        "rink/roles.py",
        "why = self._released or self._hold.lost_because\n",
        "why = self._hold.lost_because or self._released\n",
        ("faces/test_face_lost",),
    ),
    Mutant(
        "a body begins under a handle that was released",
        "rink/roles.py",
        "        if self._released:\n            raise UsageError(",
        "        if False:\n            raise UsageError(",
        ("faces/test_blocking_only", "faces/test_aio_only"),
    ),
    Mutant(
        "a body that releases its own role is cancelled",
        "rink/aio_role.py",
        "if is_lost or caller() is not self._task:",
        "if True:",
        ("faces/test_aio_only",),
    ),
    engine(
        "a loss sets the signal of one handle",
        "engine",
        "        for signal in signals:\n",
        "        for signal in signals[:1]:\n",
        "faces/test_face_lost",
    ),
    engine(
        "a wait takes a lock that a signal handler's release needs",
        "clock",
        "        return Event()\n",
        "        return __import__('threading').Event()\n",
        "faces/test_interrupts",
    ),
    Mutant(
        "a function of on_role that released its role is called again at once",
        "rink/on_role.py",
        "                        kept.lost.wait(self._pause(failures))\n",
        "                        role.lost.wait(self._pause(failures))\n",
        ("faces/test_face_lost",),
    ),
    Mutant(
        "a released assignment is never lost",
        "rink/partitions/lanes.py",
        "                lane.lost.set()\n                lane.role",
        "                lane.role",
        ("partitions/test_partitions_faces",),
    ),
    Mutant(
        "a handle that is collected is gone before its helpers are told",
        "rink/roles.py",
        "            try:\n                self._end()\n            finally:  # a signal",
        "            try:\n                self._engine.drop(self._handle)\n                self._end()\n"
        "            finally:  # a signal",
        ("faces/test_face_lost",),
    ),
    Mutant(
        "a drop that is interrupted leaks the handle",
        "rink/roles.py",
        "            try:\n                self._end()\n            finally:  # a signal",
        "            self._is_done = True\n            if self._end() is None:  # a signal",
        ("faces/test_face_lost",),
    ),
    Mutant(
        "a role set that is dropped amid a loss waits for itself",
        "rink/tracker.py",
        "if self._closed or role._released == RELEASED:",
        "if role._released == RELEASED:",
        ("faces/test_face_lost",),
    ),
    Mutant(
        "a body that was lost on the way in is not cancelled",
        "rink/aio_role.py",
        "if is_lost or caller() is not self._task:",
        "if caller() is not self._task:",
        ("faces/test_aio_only",),
    ),
    Mutant(
        "a handle may be in two bodies",
        "rink/aio_role.py",
        '        if hasattr(self, "_body"):\n',
        "        if False:\n",
        ("faces/test_aio_only",),
    ),
    engine(
        "a session that closes leaves the losses to a thread that hangs",
        "engine",
        "            self._give_everything_up(STOPPED)\n        self._mailbox",
        "            pass\n        self._mailbox",
        "engine/test_engine_faults",
    ),
]

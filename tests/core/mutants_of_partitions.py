"""Break partitions: which commit counts, where the next owner begins."""

from __future__ import annotations

from mutant import Mutant


def partitions(what: str, module: str, old: str, new: str, *tests: str) -> Mutant:
    """One in `rink/partitions`, for tests in `tests/partitions`."""
    names = tuple(f"partitions/test_partitions_{name}" for name in tests)
    return Mutant(what, f"rink/partitions/{module}.py", old, new, names)


PARTITIONS = [
    partitions(
        "an offset is written whoever has written it meanwhile",
        "cursor",
        "(Compare(record, TxnTarget.CREATE, first.session), *guards),",
        "(Compare(record, TxnTarget.CREATE, first.session),),",
        "cursor",
        "faults",
    ),
    partitions(
        "an offset is written whatever has become of the session",
        "cursor",
        "(Compare(record, TxnTarget.CREATE, first.session), *guards),",
        "tuple(guards),",
        "cursor",
        "faults",
    ),
    partitions(
        "a take that etcd refuses for its size is not halved",
        "held_partitions",
        "            if len(left) == 1:\n",
        "            if True:\n",
        "cursor",
    ),
    partitions(
        "a take writes nothing where its own token lies there",
        "held_partitions",
        "            cursor.found(next(iter(kvs), None))\n"
        "        left = [cursor for cursor in left if cursor.over is None]",
        "            cursor.found(next(iter(kvs), None))\n"
        "            cursor.is_taken = cursor.stored == cursor.next_of_take()\n"
        "        left = [one for one in left if one.over is None and not one.is_taken]",
        "faults",
        "faces",
    ),
    partitions(
        "a partition begins at 0 wherever the last one was",
        "cursor",
        "return self._written(self.offset)",
        "return self._written(0)",
        "cursor",
    ),
    partitions(
        "a committed offset may go back",
        "cursor",
        "if offset < self.offset:",
        "if False:",
        "faces",
        "cursor",
    ),
    partitions(
        "a commit without an answer is taken for one that was never sent",
        "cursor",
        "        self._unanswered.append(value)",
        "        self._unanswered[:] = []",
        "faults",
    ),
    partitions(
        "a commit without an answer is taken for done",
        "cursor",
        "if offset == self.offset and not self._unanswered:",
        "if any(one.offset == offset for one in self._unanswered) or offset == self.offset:",
        "faults",
    ),
    partitions(
        "a smaller token takes over from a greater one",
        "cursor",
        "if self.stored is not None and self.stored.token > self.token:",
        "if False:",
        "cursor",
        "faults",
    ),
    partitions(
        "offsets of another number of partitions are taken over",
        "cursor",
        "if value.partitions != partitions:",
        "if False:",
        "faces",
        "cursor",
    ),
    partitions(
        "revisions of another history are compared",
        "cursor",
        'self.over = self._refused("etcd has become another cluster, or was restored", 0)',
        "pass",
        "faults",
    ),
    partitions(
        "a partition is told though it was lost before",
        "held_partitions",
        "                self._undelivered.remove((held, True))",
        "                pass",
        "faces",
    ),
    partitions(
        "a revoked partition is let go of before its user has",
        "held_partitions",
        "if not is_delivered or held.is_released:",
        "if True:",
        "faces",
    ),
    partitions(
        "a take without an answer is not sent again",
        "held_partitions",
        "        self._due.append(held)\n        place",
        "        place",
        "faults",
    ),
    partitions(
        "who gives up half way keeps the partition for ever",
        "held_partitions",
        "        elif held.role.is_held:\n            self._begin(held.role)",
        "",
        "faces",
    ),
    partitions(
        "a take that hangs holds up revocations",
        "held_partitions",
        "self._request_threads.submit(partial(self._take, batch))",
        "self._take(batch)",
        "faults",
    ),
    Mutant(
        "offsets lie in the range that the group watches",
        "rink/core/keys.py",
        'OFFSETS = ":offsets"',
        'OFFSETS = "/offsets"',
        ("core/test_keys", "partitions/test_partitions_faces"),
    ),
    Mutant(
        "whoever cannot take over stands by",
        "rink/inspect/standby.py",
        "can_follow=member.phase != UNREADABLE and follows(member.schemes, scheme),",
        "can_follow=True,",
        ("partitions/test_partitions_standby",),
    ),
]

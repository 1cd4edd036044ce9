"""Judge a chaos run from its records, by pure functions.

The records are the sent events, the copies and the notes.
"""

import re
from collections import Counter, defaultdict

import attrs

_NOT_COMMITTED = re.compile(r"the last commit of pings/(\d+) by processor 'plain' did not succeed")


@attrs.frozen
class Note:
    """Hold one event, as `plain` noted it before processing it."""

    at: int
    worker: str
    token: int
    partition: int
    who: str
    n: int


@attrs.frozen
class Copied:
    """Hold one output of `exact`, in the order of its partition."""

    partition: int
    who: str
    n: int
    token: int


@attrs.define
class Verdict:
    """Collect the faults in words, and counts of tolerated events."""

    order: list[str] = attrs.field(factory=list)
    lost: list[str] = attrs.field(factory=list)
    doubled: list[str] = attrs.field(factory=list)
    stale: list[str] = attrs.field(factory=list)
    again: int = 0
    late: int = 0
    processed: int = 0

    @property
    def is_good(self):
        return not (self.order or self.lost or self.doubled or self.stale)


def read_notes(text, worker):
    """Return the notes of one worker.

    A last line that was cut off is left out.
    """
    notes = []
    for line in text.split("\n")[:-1]:
        at, token, partition, who, n = line.split()
        notes.append(Note(int(at), worker, int(token), int(partition), who, int(n)))
    return notes


def refused_at_the_end(log):
    """Return the number of orderly ends with a failed last commit.

    The key is the partition of `plain`. Redis may stand still, or be away, while an owner ends.
    Then the end may arrive before the next owner's take, and the commit after it.
    """
    return Counter(map(int, _NOT_COMMITTED.findall(log)))


def judge_copies(sent, copies, verdict):
    """Judge the output stream: exactly once, in order, tokens rising."""
    by_key, tokens = defaultdict(list), {}
    for copy in copies:
        by_key[copy.who].append(copy.n)
        if copy.token < tokens.get(copy.partition, copy.token):
            verdict.stale.append(
                f"partition {copy.partition}: token {copy.token} after a greater one"
            )
        tokens[copy.partition] = max(copy.token, tokens.get(copy.partition, 0))
    for who, count in sent.items():
        numbers = by_key[who]
        verdict.doubled += [
            f"copy of {who} {n}" for n, times in Counter(numbers).items() if times > 1
        ]
        verdict.lost += [f"copy of {who} {n}" for n in sorted(set(range(count)) - set(numbers))]
        firsts = list(dict.fromkeys(numbers))
        if firsts != sorted(firsts):
            verdict.order.append(f"copies of {who}: {_disorder(firsts)}")


def judge_notes(sent, notes, cuts, window, verdict):
    """Judge the notes: at least once, in order, repeated only after a cut.

    At a cut, at most `window` events may repeat.

    Args:
        sent: the number of events of each key.
        notes: of all workers.
        cuts: for each partition, how many of its owners had an unclean end, or a last commit that
            failed.
        window: how many events an owner may have uncommitted.
        verdict: is added to.
    """
    next_of, again, newest, within = (
        defaultdict(int),
        Counter(),
        defaultdict(int),
        defaultdict(dict),
    )
    for note in sorted(notes, key=lambda note: note.at):
        verdict.processed += 1
        if (
            note.token < newest[note.partition]
        ):  # a thawed owner's last one, whose commit is refused
            verdict.late += 1
            continue
        if note.token > newest[note.partition]:
            newest[note.partition], within[note.partition] = note.token, {}
        last = within[note.partition].get(note.who, -1)
        if note.n <= last:
            verdict.doubled.append(f"{note.who} {note.n} twice under token {note.token}")
        within[note.partition][note.who] = note.n
        if note.n < next_of[note.who]:
            again[note.partition] += 1
        elif note.n > next_of[note.who]:
            verdict.order.append(f"{note.who} {note.n} before {next_of[note.who]}")
        next_of[note.who] = max(next_of[note.who], note.n + 1)
    for who, count in sent.items():
        verdict.lost += [f"{who} {n}" for n in range(next_of[who], count)]
    for partition, times in again.items():
        verdict.again += times
        if times > window * cuts.get(partition, 0):
            count = cuts.get(partition, 0)
            verdict.doubled.append(
                f"partition {partition}: {times} events came again after {count} cuts"
            )


def _disorder(numbers):
    at = next(i for i in range(1, len(numbers)) if numbers[i] < numbers[i - 1])
    return f"… {numbers[max(at - 2, 0) : at + 2]} …"

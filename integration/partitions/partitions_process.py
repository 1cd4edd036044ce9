"""Run a consumer in a process, with one thread per partition.

`partitions_real_support.Consumer` starts it. Processing an item takes a moment and is reported.
Every few items are committed, and at a loss the items that are done. Commands on stdin: `leave`,
`table`. A role counts as held from the line `gained` to the line `let go`, which is written before
the release.
"""

import json
import sys
import threading

import attrs

import rink
from rink.engine.clock import SYSTEM
from rink.partitions import PartitionedConsumer

COMMIT_EVERY = 5
TAKES_S = 0.02

lock = threading.Lock()


def say(what, **more):
    with lock:
        print(json.dumps({"at": SYSTEM.now(), "what": what, **more}), flush=True)


def work(assignment):
    """Process items from the committed offset until the partition is lost."""
    with assignment:
        partition, token, offset = assignment.partition, assignment.token, assignment.offset
        say("gained", role=f"orders/{partition}", token=token)
        say("begins", partition=partition, token=token, offset=offset)
        while not assignment.lost.wait(TAKES_S):
            say("did", partition=partition, token=token, offset=offset)
            offset += 1
            if offset % COMMIT_EVERY == 0 and not commit(assignment, offset):
                break
        else:
            commit(assignment, offset)
        say("let go", role=f"orders/{partition}", token=token)


def commit(assignment, offset):
    """Commit; return False if another consumer has the partition."""
    told = {"partition": assignment.partition, "token": assignment.token, "offset": offset}
    try:
        assignment.commit(offset)
    except rink.StaleToken as error:
        say("stale", newer=error.newer, **told)
        return False
    except rink.EtcdError as error:
        say("unanswered", error=type(error).__name__, **told)
        return True
    say("committed", **told)
    return True


def consume(consumer):
    workers = []
    for change in consumer:
        if change.assigned:
            workers.append(threading.Thread(target=work, args=(change.assignment,)))
            workers[-1].start()
    for worker in workers:
        worker.join()


def main():
    given = json.loads(sys.argv[1])
    session = rink.Session(given["endpoints"], prefix=given["prefix"], **given["session"])
    member = rink.Rink(session, "g", name=given["name"], **given["member"]).join()
    count = int(given["member"]["scheme"].partition(":")[2])
    say("joined")
    with PartitionedConsumer(member, "orders", partitions=count) as consumer:
        thread = threading.Thread(target=consume, args=(consumer,))
        thread.start()
        for line in sys.stdin:
            if line.strip() == "table":
                say("table", rows=[attrs.asdict(row) for row in consumer.table()])
            else:
                break
        member.leave()
        thread.join()
    say("left")
    session.close()


main()

"""Run a member in a process of its own, and report as JSON lines.

`members.Worker` starts it. Its first argument is JSON; commands come as lines on stdin: `rank`,
`calls`, `members`, `held`, `remaining`, `leave`, `keep` (leave, keeping the rank), `no threads`
(none can be started from now on), `threads`. A role counts as held from the line `gained` to the
line `let go`, which is written before the release: user code would work between the two.

If there is a ledger, a few of the held roles write to it all the time. Their writes are a little
late and check nothing, as a job's may be. The ledger decides by the token whether a write counts.
"""

import json
import socket
import sys
import threading

import rink
from rink.engine.clock import SYSTEM

WRITE_EVERY_S = 0.03
WRITING = 4
"""Number of roles that write."""

lock = threading.Lock()
held = {}  # role -> token


def say(what, **more):
    with lock:
        print(json.dumps({"at": SYSTEM.now(), "what": what, **more}), flush=True)


def follow(roles):
    for change in roles:
        role = change.role
        if change.gained:
            say("gained", role=role.name, token=role.token)
            held[role.name] = role.token
        else:
            held.pop(role.name, None)
            say("let go", role=role.name, token=role.token)


def write(path, name, member, done):
    """Write the held roles' tokens a moment later.

    After a thaw, these are the roles held before the freeze.
    """
    with socket.socket(socket.AF_UNIX) as ledger, ledger.makefile("rw") as lines:
        ledger.connect(path)
        while not done.is_set():
            writes = sorted(held.copy().items())[:WRITING]
            left = member.session_remaining
            until = SYSTEM.now() + left if 0 < left < float("inf") else None
            done.wait(WRITE_EVERY_S)
            for role, token in writes:
                print(
                    json.dumps({"who": name, "role": role, "token": token, "until": until}),
                    file=lines,
                    flush=True,
                )
                lines.readline()


def main():
    given = json.loads(sys.argv[1])
    session = rink.Session(given["endpoints"], prefix=given["prefix"], **given["session"])
    member = rink.Rink(session, "g", name=given["name"], **given["member"])
    try:
        member.join()
    except rink.RinkError as error:
        say("failed", error=type(error).__name__, text=str(error))
        return
    say("joined")
    done = threading.Event()
    with member.roles(given["roles"]) as roles:
        threads = [threading.Thread(target=follow, args=(roles,))]
        if given["ledger"]:
            writer = (given["ledger"], given["name"], member, done)
            threads.append(threading.Thread(target=write, args=writer))
        for thread in threads:
            thread.start()
        serve(member, session)
        member.leave()
        done.set()
        for thread in threads:
            thread.join()
    say("left")
    session.close()


def refuse(thread):
    raise RuntimeError("can't start new thread")


# Every command must write one line or end the loop: the test reads an answer for each command.
# A command that is added without an answer would leave `members.Worker` waiting.
def serve(member, session):
    """Answer commands until one makes the member leave."""
    start = threading.Thread.start
    for line in sys.stdin:
        match line.strip():
            case "rank":
                say("rank", rank=member.rank, version=member.version.number)
            case "calls":
                say("calls", calls=session.etcd.calls)
            case "members":
                say("members", names=[one.name for one in member.members])
            case "held":
                say("held", roles=sorted(held))
            case "remaining":
                say("remaining", seconds=member.session_remaining)
            case "no threads" as command:
                threading.Thread.start = refuse
                say(command)
            case "threads" as command:
                threading.Thread.start = start
                say(command)
            case "keep":
                member.leave(keep_rank=True)
                return
            case "leave":
                return


main()

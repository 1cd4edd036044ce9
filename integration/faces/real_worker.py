"""A member in a process of its own, which says what happens to it as lines of JSON.

Started by `real_support.Worker`. Its first argument is JSON; commands come as lines on stdin:
`held` (what does is_held say at this moment), `rank`, `members`, `leave`, `keep` (leave, keeping the rank).
A role counts as held from the line `gained` to the line `let go`, which is said before it is
released: what user code would do between the two.
"""

import json
import sys
import threading

import rink
from rink.engine.clock import SYSTEM

lock = threading.Lock()


def say(what, **more):
    with lock:
        print(json.dumps({"at": SYSTEM.now(), "what": what, **more}), flush=True)


def follow(roles):
    for change in roles:
        role = change.role
        say("gained" if change.gained else "let go", role=role.name, token=role.token)


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
    with member.roles(given["roles"]) as roles:
        thread = threading.Thread(target=follow, args=(roles,))
        thread.start()
        handles = {}
        for line in sys.stdin:
            match line.strip():
                case "take":  # handles of our own, to ask after a thaw
                    handles = {name: member.get_role(name) for name in roles.held}
                    say("taken", roles=sorted(handles))
                case "held":
                    held = [name for name, role in handles.items() if role.is_held]
                    lost = {n: r.lost.wait(5.0) for n, r in handles.items()} if not held else {}
                    say("held", roles=held, lost=lost, live=session.is_live)
                    for role in handles.values():
                        role.release()
                    handles = {}
                case "rank":
                    say("rank", rank=member.rank, version=member.version.number)
                case "members":
                    say("members", names=[one.name for one in member.members])
                case "keep":
                    member.leave(keep_rank=True)
                    break
                case "leave":
                    break
        member.leave()
        thread.join()
    say("left")
    session.close()


main()

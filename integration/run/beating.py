"""Beat as the command of `rink run`: a line every few milliseconds.

Each line has a name, the process id, the token, CLOCK_BOOTTIME in ms, and the end in RINK_FILE. The
end is 0 if the file does not say that the role is held. The program uses only the standard library,
so that it starts within a few milliseconds.

Arguments are the output file and words. `orphan` starts a second one in a session of its own, whose
parent ends. `deaf` ignores SIGTERM. `asks` writes the signals that came. `chain` continues in a new
process after each line.
"""

import contextlib
import os
import signal
import sys
import time

BEAT_S = 0.005


def boot_ms():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def told_until():
    with contextlib.suppress(OSError, ValueError):
        file = os.open(os.environ.get("RINK_FILE", ""), os.O_RDONLY)
        _, written, until = map(int, os.read(file, 100).split())
        os.close(file)
        if written <= boot_ms() < until:
            return until
    return 0


def main(path, *words):
    # Invariant: each beat is one write in append mode, shorter than a page. So beats of several
    # processes never mix, and a beat is in the file before the process can be killed after it. Each
    # word of the arguments changes only one part below, so words combine freely.
    out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(name):
        token = os.environ["RINK_TOKEN"]
        os.write(out, f"{name} {os.getpid()} {token} {boot_ms()} {told_until()}\n".encode())

    def heard(number, _):
        write(signal.Signals(number).name)
        if number in (signal.SIGTERM, signal.SIGINT) and "deaf" not in words:
            sys.exit(0)

    if "deaf" in words:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "asks" in words:
        for number in (15, 2, 1, 3, 10, 12, 28):
            signal.signal(number, heard)
    name = "child"
    if "orphan" in words and os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        name = "orphan"
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        write(name)
        if "chain" in words and os.fork():
            os._exit(0)
        time.sleep(0 if "chain" in words else BEAT_S)


main(*sys.argv[1:])

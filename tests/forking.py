"""Fork, for scripts that tests run in processes of their own."""

import os
import select
import signal
import sys
import traceback


def fork(body, seconds=30):
    """Run a body in a child process that ends normally.

    An exception of the body is printed, and fails the test.
    """
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            body()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
        sys.exit(code)
    ended, _, _ = select.select([os.pidfd_open(pid)], [], [], seconds)
    if not ended:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert ended, "the child hangs"
    assert status == 0, status

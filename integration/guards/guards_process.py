"""Write under a guard in a process of its own, and print the progress.

    python guards_process.py <verb> <pickled>

hang    writes part 0 of a batch and stays in it until a line comes
race    publishes batches, as fast as it can, until all are there
raise   raises the fence to each of some tokens
"""

import base64
import pickle
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "guards")]


class Child:
    """A process that writes under a guard, and its output lines."""

    def __init__(self, verb, *given):
        told = base64.b64encode(pickle.dumps(given)).decode()
        self.process = subprocess.Popen(
            [sys.executable, __file__, verb, told],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def line(self):
        found = self.process.stdout.readline().strip()
        assert found, self.process.stderr.read()
        return found

    def tell(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self, seconds=60):
        out, err = self.process.communicate(timeout=seconds)
        assert self.process.returncode == 0, err
        return out.split()

    def kill(self):
        self.process.kill()
        self.process.communicate()


def written(step, kind, one, number):
    """Write as the worlds do, but without a world."""
    import guards_worlds

    world = {
        "sql": guards_worlds.SqlWorld,
        "parquet": guards_worlds.ParquetWorld,
        "redis": guards_worlds.RedisWorld,
    }
    world[kind].write(None, step, one, number)


def hang(guard, kind, fence, one):
    try:
        with guard.part(fence, one, 0) as step:
            for _ in range(1000):
                written(step, kind, one, 0)
            print("in", flush=True)
            sys.stdin.readline()
    except Exception as error:
        print(type(error).__name__, flush=True)
    else:
        print("out", flush=True)


def race(guard, kind, fence, batches):
    print("ready", flush=True)
    sys.stdin.readline()
    for one in batches:
        guard.begin(fence, one)
        results = []
        for number in range(one.parts):
            part = guard.part(fence, one, number)
            with part as step:
                if step is not None:
                    written(step, kind, one, number)
            results.append(part.result)
        guard.finish(fence, one, results)
    print("done", flush=True)


def raise_each(guard, fences):
    print("ready", flush=True)
    sys.stdin.readline()
    for fence in fences:
        try:
            guard.raise_fence(fence)
            print("raised", flush=True)
        except Exception as error:
            print(type(error).__name__, flush=True)


if __name__ == "__main__":
    given = pickle.loads(base64.b64decode(sys.argv[2]))
    {"hang": hang, "race": race, "raise": raise_each}[sys.argv[1]](*given)

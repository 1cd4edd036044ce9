"""Stand in for kubectl where there is no cluster.

Secrets are folders, and pods are processes. RINK_CLUSTER names a folder. Its `secrets/` gets a
folder for each Secret, and its `pods.json` says how a command is run in a pod. Only the calls of
`deploy/etcd/setup` are supported.
"""

import json
import os
import sys
from pathlib import Path

CLUSTER = Path(os.environ["RINK_CLUSTER"])


def main(arguments: list[str]) -> int:
    match [one for one in arguments if not one.startswith("--namespace=")]:
        case ["create", "secret", "generic", name, *options]:
            return create(name, options)
        case ["apply", "--server-side", "--force-conflicts", "--filename=-"]:
            return apply(json.load(sys.stdin))
        case ["exec", pod, container, "--", *command]:
            return execute(pod, container.removeprefix("--container="), command)
    print(f"kubectl {' '.join(arguments)}: not supported by this stand-in", file=sys.stderr)
    return 1


def create(name: str, options: list[str]) -> int:
    assert options[:2] == ["--dry-run=client", "--output=yaml"], options
    files = [option.removeprefix("--from-file=").split("=", 1) for option in options[2:]]
    json.dump(
        {"name": name, "data": {key: Path(path).read_text() for key, path in files}}, sys.stdout
    )
    return 0


def apply(secret: dict) -> int:
    folder = CLUSTER / "secrets" / secret["name"]
    folder.mkdir(parents=True, exist_ok=True)
    for key, text in secret["data"].items():
        (folder / key).write_text(text)
    print(f"secret/{secret['name']} serverside-applied")
    return 0


def execute(pod: str, container: str, command: list[str]) -> int:
    known = json.loads((CLUSTER / "pods.json").read_text())[pod][container]
    before, env = known["before"], {**os.environ, **known["env"]}
    program = known["programs"][command[0]]
    os.execvpe(before[0], [*before, *program, *command[1:]], env)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

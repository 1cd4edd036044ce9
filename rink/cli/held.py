"""Answer whether a role is held here, by a sidecar's files: `rink held`."""

from __future__ import annotations

from pathlib import Path

import click

from rink.cli.exit_status import Not
from rink.sidecar.clock import now_ms
from rink.sidecar.role_files import FOLDER, file_name, is_valid


@click.command(short_help="Say whether ROLE is held here now, by a sidecar's files.")
@click.argument("role")
@click.option(
    "--files",
    required=True,
    metavar="DIR",
    envvar="RINK_FILES",
    type=click.Path(path_type=Path),
    help="The folder of the sidecar's --files.",
)
def held(role: str, files: Path) -> None:  # fmt: skip
    """Print the token of ROLE if it is held here now. Exit with 3 if not.

    Run it before each write: the role may end in the next moment.
    """
    path = files / FOLDER / file_name(role)
    try:
        line = path.read_text(encoding="utf-8").partition("\n")[0]
    except FileNotFoundError:
        raise Not(f"role {role!r} is not held here: there is no file {path}") from None
    except OSError as error:
        raise Not(f"cannot tell whether role {role!r} is held: {path}: {error.strerror}") from error
    if not is_valid(line, now_ms()):
        raise Not(f"role {role!r} is not held here: its end has passed")
    click.echo(line.split()[0])

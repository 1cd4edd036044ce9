"""Run `python -m rink.cli`, for where the script is not on the PATH."""

from rink.cli import main

main()

"""Run `python -m rink.cli`, if the script is not on the PATH."""

from rink.cli import main

main()

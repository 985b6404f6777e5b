"""The command line `highway-rl`: a record with a docstring for each command. Imports everything, on demand."""

from highway_rl.cli.app import main

__all__ = ["main"]

"""The command line: ``main`` runs the commands of a team's package."""

from litlab.cli.main import main

__all__ = ["main"]

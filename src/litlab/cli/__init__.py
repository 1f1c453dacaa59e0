"""The command line: ``main`` runs the commands of a team's package."""

from litlab.cli.command import main
from litlab.util.former_names import formerly

__all__ = ["formerly", "main"]

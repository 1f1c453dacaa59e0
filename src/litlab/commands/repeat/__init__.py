"""``fit --seeds`` and ``fit --folds``: the same fit several times, with one setting varied."""

from litlab.commands.repeat.repeat import main

__all__ = ["main"]

"""``fit --seeds`` and ``fit --folds``: the same fit several times, with one setting varied."""

"""``fit --seeds``: the same fit with several seeds, and how far their metrics are apart."""

"""``fit --plan``: what a run needs of each of many devices, without running it."""

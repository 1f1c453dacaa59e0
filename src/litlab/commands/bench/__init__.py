"""``bench``: which settings make an experiment faster on this machine."""

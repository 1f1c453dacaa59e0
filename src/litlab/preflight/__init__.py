"""``fit --check``: a few steps tried, time and memory estimated, before a run is started."""

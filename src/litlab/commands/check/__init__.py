"""``fit --check``: try a few steps, and estimate time and memory, before a run is started."""

"""Imported by the fork server of the tests: what their processes would import themselves, each in a second or more."""

import gc
from importlib import import_module

for name in ("litlab.cli.fit", "optuna", "pandas", "sklearn.tree", "torch.utils.tensorboard", "tests.processes"):
    import_module(name)
gc.freeze()  # so that no process looks for garbage among all of it

"""The machinery around experiments: command line, tasks, data, callbacks, runs and sweeps. It knows
no experiment.
"""

__version__ = "0.4.0"

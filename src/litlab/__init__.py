"""The machinery around experiments: command line, tasks, data, callbacks, runs and sweeps. It knows no experiment."""

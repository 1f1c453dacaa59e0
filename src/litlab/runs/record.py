"""Shim."""

from litlab.runs.config import RunConfig as OldConfig
from litlab.runs.config import log_results
from litlab.runs.recorder import RunRecord as Old

__all__ = ["log_results"]


def RunRecord(test_follows):
    return Old(lambda: test_follows)


def RunConfig(parser, config):
    return OldConfig(parser, config, overwrite=True)

"""Shim."""

from litlab.checkpointing.warm_start import initialise

__all__ = ["initialise"]


def find_checkpoint(text):
    from litlab.runs.saved import checkpoint_of

    return checkpoint_of(text)

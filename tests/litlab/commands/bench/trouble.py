"""Callbacks of experiments whose speed is known."""

import time

import torch
from lightning.pytorch import Callback


class SlowUnlessChannelsLast(Callback):
    """Takes 200 ms more for a step unless the filters have their channels last in memory."""

    def on_train_batch_start(self, trainer, pl_module, *_):
        filters = next(parameter for parameter in pl_module.parameters() if parameter.ndim == 4)
        if filters.is_contiguous():
            time.sleep(0.2)  # more than a busy machine adds


class TooLarge(Callback):
    """Wants more memory than there is."""

    def on_train_batch_start(self, *_):
        torch.empty(2**55)

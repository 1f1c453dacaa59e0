"""How many optimizer steps a run has."""

import math

import pytest
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler

from litlab.util.steps import count_steps


@pytest.mark.parametrize("scheduling", [{0: 3}, {2: 4}, {0: 2, 1: 3, 4: 1, 9: 7}], ids=str)
def test_the_last_step_of_an_epoch_may_be_shorter(scheduling):
    schedule = GradientAccumulationScheduler(scheduling)
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[schedule])
    sizes = [schedule.get_accumulate_grad_batches(epoch) for epoch in range(12)]
    for epochs in range(13):
        assert count_steps(trainer, 7, epochs) == sum(math.ceil(7 / size) for size in sizes[:epochs])
    assert count_steps(trainer, math.inf, 3) == count_steps(trainer, 7, math.inf) == math.inf

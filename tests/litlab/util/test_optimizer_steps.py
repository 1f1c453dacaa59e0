import math

import pytest
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler

from litlab.util.optimizer_steps import steps_of_epochs, whole_epochs


@pytest.mark.parametrize("scheduling", [{0: 1}, {0: 3}, {2: 4}, {0: 2, 1: 3, 4: 1, 9: 7}], ids=str)
def test_counted_step_by_step(scheduling):
    schedule = GradientAccumulationScheduler(scheduling)
    trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[schedule])
    batches = 7
    of_epoch = [math.ceil(batches / schedule.get_accumulate_grad_batches(epoch)) for epoch in range(12)]
    for first in range(12):
        for end in range(13):
            assert steps_of_epochs(trainer, batches, first, end) == sum(of_epoch[first:end])
    for epoch in range(12):
        for step in range(of_epoch[epoch]):
            rest = step * schedule.get_accumulate_grad_batches(epoch)
            assert whole_epochs(trainer, batches, sum(of_epoch[:epoch]) + step) == (epoch, rest)
    assert steps_of_epochs(trainer, math.inf, 0, 3) == steps_of_epochs(trainer, 7, 0, math.inf) == math.inf

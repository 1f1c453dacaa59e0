"""How long a run takes, as ``fit --check`` foretells it from a few steps."""

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from litlab.util import steps as probe
from tests.litlab.commands.check.conftest import Data, model

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:.*tensorboardX")


class Stream(IterableDataset):
    """Batches without a number."""

    def __iter__(self):
        for _ in range(20):
            yield torch.randn(5, 6), torch.arange(5) % 4


class Streamed(Data):
    def train_dataloader(self):
        return DataLoader(Stream(), batch_size=None)

    val_dataloader = train_dataloader


@pytest.mark.parametrize(
    ("data", "seconds", "settings", "steps", "rows"),
    [
        # Without the warm-up: 180 * 0.2 + 3 * 0.1; five seconds of steps, by the second one
        (Data(), (0.1, 0.2, 0.01), {}, 52, ["step 200 ms", "validation 100 ms", "time about 36.3 s at the pace"]),
        (Data(val=0), (30, 30, 0), {}, 1, ["step 30 s", "validation none"]),
        (
            Streamed(),
            (0.1, 0.1, 1),
            {"max_epochs": -1, "max_steps": 100},
            20,
            ["step 100 ms", "validation unknown", "100 steps, unlimited an epoch"],
        ),
    ],
    ids=range(3),
)
@pytest.mark.filterwarnings("ignore:Total length of `list`")
def test_the_steps_after_a_warm_up_are_timed(checked, monkeypatch, data, seconds, settings, steps, rows):
    """Time passes only when the module makes a step: of the warm-up, a later one, one of validation."""
    now, done = 0.0, 0
    module = model()
    training_step, validation_step = module.training_step, module.validation_step

    def timed_training_step(batch, batch_idx):
        nonlocal now, done
        now += seconds[module.global_step >= 2]
        done += 1
        return training_step(batch, batch_idx)

    def timed_validation_step(batch, batch_idx):
        nonlocal now
        now += seconds[2]
        return validation_step(batch, batch_idx)

    monkeypatch.setattr(probe.time, "perf_counter", lambda: now)
    module.training_step, module.validation_step = timed_training_step, timed_validation_step
    out = checked(module, data, **settings)
    assert [row for row in rows if row not in out] == []
    assert done == steps

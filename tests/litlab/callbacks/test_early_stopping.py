"""When a run stops early, and where it was interrupted and resumed."""

from contextlib import nullcontext

import pytest
import torch
from lightning.pytorch import LightningModule
from torch.utils.data import DataLoader

from litlab.callbacks.early_stopping import RunEarlyStopping
from litlab.checkpointing.callback import RunCheckpoint
from litlab.checkpointing.resume import ExactResume
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import make_trainer


class Model(LightningModule):
    """Logs the scores of the epochs."""

    def __init__(self, scores: list[float], name: str = "val/acc", stop: int | None = None):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.scores, self.name, self.stop = scores, name, stop

    def training_step(self, batch, batch_idx):
        if self.current_epoch == self.stop:
            raise KeyError
        return (self.weight - batch.mean()).square().sum()

    def validation_step(self, batch, batch_idx):
        self.log(self.name, self.scores[self.current_epoch])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def epochs(folder, model, ckpt_path=None, monitor="val/acc", mode=None, **options) -> int:
    stopping = RunEarlyStopping(monitor, mode=mode, **{"patience": 1, **options})
    callbacks = [stopping, ExactResume(), RunCheckpoint(str(folder), save_top_k=0)]
    settings = {"max_epochs": len(model.scores), "num_sanity_val_steps": 0, "enable_checkpointing": True}
    trainer = make_trainer(folder, callbacks=callbacks, **settings)
    data = DataLoader(torch.ones(4, 1))
    trainer.fit(model, data, data, ckpt_path=ckpt_path, weights_only=True)
    return trainer.current_epoch


RISING_LATE = [0.5, 0.4, 0.3, 0.6, 0.7, 0.6, 0.8, 0.9]


@pytest.mark.filterwarnings("ignore:Checkpoint directory", "ignore:You're resuming")
@pytest.mark.parametrize("stop", [2, None])
def test_a_resumed_run_trains_as_many_epochs(tmp_path, stop):
    with nullcontext() if stop is None else pytest.raises(KeyError):
        assert epochs(tmp_path, Model(RISING_LATE, stop=stop), patience=2) == 3
    assert epochs(tmp_path, Model(RISING_LATE), tmp_path / "last.ckpt", patience=2) == 3


def test_direction(tmp_path):
    assert epochs(tmp_path, Model([0.5, 0.4, 0.3], "val/loss"), monitor="val/loss") == 3
    assert epochs(tmp_path, Model([0.5, 0.4, 0.3], "mine"), monitor="mine", mode="max") == 2
    with pytest.raises(UserError, match=r"^early_stopping.mode: val/loss is better when lower; set min, or leave"):
        epochs(tmp_path, Model([0.5], "val/loss"), monitor="val/loss", mode="max")

"""When a run stops early: with `min_epochs`, and where it was interrupted and resumed."""

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader

from litlab.callbacks.early_stopping import RunEarlyStopping
from litlab.checkpointing.callback import RunCheckpoint
from litlab.checkpointing.resume import ExactResume
from litlab.errors import UserError


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


def epochs(folder, model, ckpt_path=None, monitor="val/acc", mode=None, **settings) -> int:
    options = {"patience": settings.pop("patience", 1), "stopping_threshold": settings.pop("threshold", None)}
    trainer = Trainer(
        **{"max_epochs": len(model.scores), **settings}, logger=False, accelerator="cpu", num_sanity_val_steps=0,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
        callbacks=[
            RunEarlyStopping(monitor, mode=mode, **options), ExactResume(), RunCheckpoint(str(folder), save_top_k=0)
        ],
    )  # fmt: skip
    data = DataLoader(torch.ones(4, 1))
    trainer.fit(model, data, data, ckpt_path=ckpt_path, weights_only=True)
    return trainer.current_epoch


RISING_LATE = [0.5, 0.4, 0.3, 0.6, 0.7, 0.6, 0.8, 0.9]
CASES = [
    (RISING_LATE, {}, 2),
    (RISING_LATE, {"patience": 2}, 3),
    (RISING_LATE, {"min_epochs": 3}, 3),
    (RISING_LATE, {"min_epochs": 4}, 6),  # a new best in the fourth epoch: the stops before it are forgotten
    (RISING_LATE, {"min_epochs": 5}, 6),
    (RISING_LATE, {"min_steps": 14}, 6),
    (RISING_LATE, {"min_epochs": 7}, 8),
    ([0.5, 0.6, 0.7, 0.8], {"threshold": 0.55}, 2),
]


@pytest.mark.parametrize(("scores", "settings", "expected"), CASES, ids=str)
def test_epochs(tmp_path, scores, settings, expected):
    assert epochs(tmp_path, Model(scores), **settings) == expected


@pytest.mark.filterwarnings("ignore:Checkpoint directory", "ignore:You're resuming")
@pytest.mark.parametrize("stop", range(1, 7))
@pytest.mark.parametrize(("scores", "settings", "expected"), CASES[2:], ids=str)
def test_a_resumed_run_trains_as_many(tmp_path, scores, settings, expected, stop):
    if stop < expected:
        with pytest.raises(KeyError):
            epochs(tmp_path, Model(scores, stop=stop), **settings)
    else:
        epochs(tmp_path, Model(scores), **settings)
    last = tmp_path / "last.ckpt"
    assert torch.load(last, weights_only=True)["epoch"] == min(stop, expected)
    assert epochs(tmp_path, Model(scores), last, **settings) == expected


def test_direction(tmp_path):
    assert epochs(tmp_path, Model([0.5, 0.4, 0.3], "val/loss"), monitor="val/loss") == 3
    assert epochs(tmp_path, Model([0.5, 0.4, 0.3], "mine"), monitor="mine", mode="max") == 2
    with pytest.raises(UserError, match=r"^early_stopping.mode: val/loss is better when lower; set min, or leave"):
        epochs(tmp_path, Model([0.5], "val/loss"), monitor="val/loss", mode="max")
    with pytest.raises(UserError, match=r"^early_stopping.mode: it is not known whether mine is better"):
        epochs(tmp_path, Model([0.5], "mine"), monitor="mine")

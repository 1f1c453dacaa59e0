"""Which checkpoints a run keeps."""

from datetime import timedelta

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader

from project.errors import UserError
from project.runs.checkpoint import RunCheckpoint

SCORES = (0.5, 0.7, 0.6, 0.4)  # of the four epochs, four steps each


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def training_step(self, batch, batch_idx):
        return (self.weight - batch.mean()).square().sum()

    def validation_step(self, batch, batch_idx):
        self.log("val/score", SCORES[self.current_epoch])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.fixture
def fit(tmp_path):
    """Fits four epochs; returns (step of last.ckpt, steps of the others), and what last.ckpt was at each step."""

    def run(checkpoint: RunCheckpoint, **settings):
        written: list[tuple[str, int]] = []
        save = checkpoint._save_checkpoint

        def saved(trainer, path):
            written.append((path.rsplit("/")[-1], trainer.global_step))
            save(trainer, path)

        checkpoint._save_checkpoint = saved
        trainer = Trainer(
            **{"max_epochs": 4, "callbacks": [checkpoint], "logger": False, "accelerator": "cpu",
               "num_sanity_val_steps": 0, "enable_progress_bar": False, "enable_model_summary": False, **settings}
        )  # fmt: skip
        data = DataLoader(torch.ones(4, 1))
        trainer.fit(Model(), data, data)
        kept = {path.name: torch.load(path, weights_only=True)["global_step"] for path in tmp_path.glob("*.ckpt")}
        return kept, written

    return run


def test_the_last_state_is_kept_though_it_is_not_the_best(fit, tmp_path):
    kept, written = fit(RunCheckpoint(str(tmp_path), monitor="val/score", mode="max"))
    assert kept == {"epoch=1-step=8.ckpt": 8, "last.ckpt": 16}
    assert [step for name, step in written if name == "last.ckpt"] == [4, 8, 12, 16]


def test_within_epochs_the_last_state_alone_is_written(fit, tmp_path):
    kept, written = fit(RunCheckpoint(str(tmp_path), monitor="val/score", mode="max", every_n_train_steps=3))
    assert kept == {"epoch=1-step=8.ckpt": 8, "last.ckpt": 16}
    assert [step for name, step in written if name == "last.ckpt"] == [3, 4, 6, 8, 9, 12, 12, 15, 16]
    assert [step for name, step in written if name != "last.ckpt"] == [4, 8]


def test_a_step_is_complete_before_it_is_kept(fit, tmp_path):
    every = RunCheckpoint(str(tmp_path), train_time_interval=timedelta(microseconds=1), save_top_k=0)
    _, written = fit(every, accumulate_grad_batches=2, max_epochs=1)
    assert [step for _, step in written] == [1, 2, 2]


def test_without_last(fit, tmp_path):
    kept, _ = fit(RunCheckpoint(str(tmp_path), monitor="val/score", mode="max", save_top_k=2, save_last=False))
    assert kept == {"epoch=1-step=8.ckpt": 8, "epoch=2-step=12.ckpt": 12}


@pytest.mark.parametrize("name", ["every_n_epochs", "every_n_train_steps"])
def test_numbers_out_of_range(name):
    with pytest.raises(UserError, match=rf"^checkpoint\.{name} is 0: it must be at least 1\.$"):
        RunCheckpoint(**{name: 0})

"""Which checkpoints a run keeps."""

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader

from litlab.checkpointing import callback as checkpoint
from litlab.checkpointing.callback import RunCheckpoint
from litlab.errors import UserError

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

    def run(keep: RunCheckpoint, ckpt_path: str | None = None, **settings):
        written: list[tuple[str, int]] = []
        trainer = Trainer(
            **{"max_epochs": 4, "callbacks": [keep], "logger": False, "accelerator": "cpu",
               "num_sanity_val_steps": 0, "enable_progress_bar": False, "enable_model_summary": False, **settings}
        )  # fmt: skip
        save = trainer.save_checkpoint

        def saved(path, *arguments):
            written.append((path.rsplit("/")[-1], trainer.global_step))
            save(path, *arguments)

        trainer.save_checkpoint = saved
        data = DataLoader(torch.ones(4, 1))
        trainer.fit(Model(), data, data, ckpt_path=ckpt_path, weights_only=True)
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
    assert [step for name, step in written if name == "last.ckpt"] == [3, 4, 7, 8, 11, 12, 15, 16]
    assert [step for name, step in written if name != "last.ckpt"] == [4, 8]


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"accumulate_grad_batches": 2, "max_epochs": 2}, [1, 2, 3, 4]),  # never between the batches of a step
        ({"val_check_interval": 3, "max_epochs": 1}, [1, 2, 4]),  # nor where a validation follows
        ({"max_steps": 6}, [1, 2, 3, 4, 5, 6]),
        ({"max_steps": 6, "val_check_interval": 2}, [1, 3, 4, 5, 6]),  # after its last validation
        ({"max_steps": 6, "limit_val_batches": 0}, [1, 2, 3, 4, 5, 6]),
    ],
    ids=str,
)
def test_after_which_steps_it_is_written(fit, tmp_path, settings, steps):
    every = RunCheckpoint(str(tmp_path), every_minutes=1e-9, save_top_k=0)
    _, written = fit(every, **settings)
    assert [step for _, step in written] == steps


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves by ten minutes with every training step."""
    minutes = [0]
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: 60.0 * minutes[0])
    step = Model.training_step

    def slow_step(self, batch, batch_idx):
        minutes[0] += 10
        return step(self, batch, batch_idx)

    monkeypatch.setattr(Model, "training_step", slow_step)


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({}, [3, 4, 7, 8]),  # half an hour without being told
        ({"every_minutes": 50}, [4, 8]),  # the end of an epoch counts too
        ({"every_minutes": None}, [4, 8]),
        ({"every_minutes": float("inf")}, [4, 8]),
        ({"every_minutes": 20, "every_n_train_steps": 1}, [1, 2, 3, 4, 5, 6, 7, 8]),
    ],
)
def test_a_long_epoch_is_kept_by_time(fit, tmp_path, clock, options, steps):
    _, written = fit(RunCheckpoint(str(tmp_path), save_top_k=0, **options), max_epochs=2)
    assert [step for name, step in written] == steps


def test_without_last(fit, tmp_path):
    kept, _ = fit(RunCheckpoint(str(tmp_path), monitor="val/score", mode="max", save_top_k=2, save_last=False))
    assert kept == {"epoch=1-step=8.ckpt": 8, "epoch=2-step=12.ckpt": 12}


@pytest.mark.parametrize(
    ("filename", "settings", "expected"),
    [
        ("{epoch:02d}-{val/score:.2f}", {}, "epoch=01-val_score=0.70.ckpt"),
        ("e{epoch}-score={val/score:.1f}", {"auto_insert_metric_name": False}, "e1-score=0.7.ckpt"),
        ("best", {}, "best.ckpt"),
        ("../{epoch}", {}, ".._epoch=1.ckpt"),
    ],
)
def test_metrics_in_a_file_name_make_no_folders(fit, tmp_path, filename, settings, expected):
    kept, _ = fit(RunCheckpoint(str(tmp_path), filename, monitor="val/score", mode="max", **settings))
    assert kept == {expected: 8, "last.ckpt": 16}
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.mark.filterwarnings("ignore:Checkpoint directory")
def test_the_best_one_that_a_run_was_resumed_from_is_replaced_too(fit, tmp_path):
    trainer_settings = {"monitor": "val/score", "mode": "max", "save_last": False}
    fit(RunCheckpoint(str(tmp_path), **trainer_settings), max_epochs=1)
    [first] = tmp_path.glob("*.ckpt")
    kept, _ = fit(RunCheckpoint(str(tmp_path), **trainer_settings), ckpt_path=str(first))
    assert kept == {"epoch=1-step=8.ckpt": 8}


@pytest.mark.filterwarnings("ignore:Checkpoint directory")
def test_files_outside_of_its_folder_are_not_removed(fit, tmp_path):
    """A checkpoint may come from another person, and names the files that are removed once there are better ones."""
    keep = RunCheckpoint(str(tmp_path / "checkpoints"), monitor="val/score", mode="max")
    fit(keep, max_epochs=1)
    victim = tmp_path / "elsewhere/victim.ckpt"
    victim.parent.mkdir()
    victim.touch()
    (tmp_path / "checkpoints/linked").symlink_to(victim.parent)
    last = tmp_path / "checkpoints/last.ckpt"
    for name in ("../elsewhere/victim.ckpt", "linked/victim.ckpt", str(victim)):
        saved = torch.load(last, weights_only=True)
        [state] = [state for key, state in saved["callbacks"].items() if key.startswith("RunCheckpoint")]
        path = str(tmp_path / "checkpoints" / name)
        state |= {"best_model_path": path, "kth_best_model_path": path, "best_k_models": {path: torch.tensor(0.1)}}
        torch.save(saved, last)
        fit(RunCheckpoint(str(tmp_path / "checkpoints"), monitor="val/score", mode="max"), str(last))
        assert victim.is_file()


@pytest.mark.filterwarnings("ignore:Checkpoint directory")
def test_the_direction_of_a_metric_that_is_known_may_be_left_out(fit, tmp_path, monkeypatch):
    log = Model.log
    monkeypatch.setattr(Model, "log", lambda self, name, value: log(self, "val/acc", value))
    kept, _ = fit(RunCheckpoint(str(tmp_path), monitor="val/acc"))
    assert kept == {"epoch=1-step=8.ckpt": 8, "last.ckpt": 16}
    with pytest.raises(UserError, match=r"^checkpoint.mode: val/acc is better when higher; set max, or leave"):
        fit(RunCheckpoint(str(tmp_path), monitor="val/acc", mode="min"))
    with pytest.raises(UserError, match=r"^checkpoint.mode: it is not known whether val/score is better"):
        fit(RunCheckpoint(str(tmp_path), monitor="val/score"))

"""Which checkpoints a run keeps."""

from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader

from litlab.checkpointing import callback as checkpoint
from litlab.checkpointing.callback import RunCheckpoint, check_name
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
    assert [step for name, step in written if name == "last.ckpt"] == [3, 4, 6, 8, 9, 12, 12, 15, 16]
    assert [step for name, step in written if name != "last.ckpt"] == [4, 8]


def test_a_step_is_complete_before_it_is_kept(fit, tmp_path):
    every = RunCheckpoint(str(tmp_path), every_minutes=1e-9, save_top_k=0)
    _, written = fit(every, accumulate_grad_batches=2, max_epochs=1)
    assert [step for _, step in written] == [1, 2, 2]


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
        ({"every_minutes": 20, "every_n_train_steps": 3}, [2, 3, 4, 6, 8, 8]),
    ],
)
def test_a_long_epoch_is_kept_by_time(fit, tmp_path, clock, options, steps):
    _, written = fit(RunCheckpoint(str(tmp_path), save_top_k=0, **options), max_epochs=2)
    assert [step for name, step in written] == steps


def test_ranks_ask_the_first_one_for_the_time_rarely(monkeypatch):
    """At a steady speed, at one that grows and at one that falls: not very late, and with few questions."""
    now, asked = [0.0], []
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])
    ranks = SimpleNamespace(
        world_size=2, global_step=0, strategy=SimpleNamespace(broadcast=lambda answer: asked.append(answer) or answer)
    )
    for seconds, latest in (((0.01, 0.01), 1870), ((0.1, 0.01), 1870), ((0.01, 0.1), 2500)):
        every = RunCheckpoint(every_minutes=30)
        now[0], step = 0.0, 0
        asked.clear()
        every._begin_interval(ranks)
        late = False
        while not late:
            step += 1
            now[0] += seconds[now[0] > 900]
            late = every._is_late(ranks, step)
        assert len(asked) < 100  # of 18,000 steps or more
        assert 1800 <= now[0] < latest


def test_without_last(fit, tmp_path):
    kept, _ = fit(RunCheckpoint(str(tmp_path), monitor="val/score", mode="max", save_top_k=2, save_last=False))
    assert kept == {"epoch=1-step=8.ckpt": 8, "epoch=2-step=12.ckpt": 12}


@pytest.mark.parametrize(
    ("name", "value", "bound"),
    [
        ("every_n_epochs", 0, "at least 1"),
        ("every_n_train_steps", 0, "at least 1"),
        *(("every_minutes", minutes, "above 0") for minutes in (0, -1.0, float("nan"))),
    ],
)
def test_numbers_out_of_range(name, value, bound):
    with pytest.raises(UserError, match=rf"^checkpoint\.{name}: {value} is not valid; it must be {bound}$"):
        RunCheckpoint(**{name: value})


@pytest.mark.parametrize(
    ("filename", "settings", "expected"),
    [
        ("{epoch:02d}-{val/score:.2f}", {}, "epoch=01-val_score=0.70.ckpt"),
        ("e{epoch}-score={val/score:.1f}", {"auto_insert_metric_name": False}, "e1-score=0.7.ckpt"),
        ("best", {}, "best.ckpt"),
    ],
)
def test_metrics_in_a_file_name_make_no_folders(fit, tmp_path, filename, settings, expected):
    kept, _ = fit(RunCheckpoint(str(tmp_path), filename, monitor="val/score", mode="max", **settings))
    assert kept == {expected: 8, "last.ckpt": 16}
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    ("filename", "says"),
    [
        ("../../x", "is not a valid file name"),
        ("a/{epoch}", "is not a valid file name"),
        ("/tmp/x", "is not a valid file name"),
        ("{epoch}/..", "is not a valid file name"),
        ("..", "is not a valid file name"),
        (" ", "is not a valid file name"),
        ("a\nb", "is not a valid file name"),
        ("last", "is the name of the last checkpoint"),
        ("{epoch:zz}", "can't be filled in"),
        ("{epoch", "can't be filled in"),
        ("{val/acc:d}", "can't be filled in"),
        ("x" * 250, "is too long"),
    ],
)
def test_names_that_can_not_be(filename, says):
    with pytest.raises(UserError, match=rf"^checkpoint\.filename: .*{says}"):
        RunCheckpoint(filename=filename)


def test_names_of_lightnings_own_callback_that_would_make_folders():
    check_name("{epoch}-{val/acc:.2f}")
    with pytest.raises(UserError, match=r"^ModelCheckpoint\.filename: .* makes folders"):
        check_name("{epoch}-{val/acc:.2f}", with_slashes=True)


def test_a_folder_without_a_name():
    with pytest.raises(UserError, match=r"^checkpoint\.dirpath: it is empty"):
        RunCheckpoint("")


@pytest.mark.filterwarnings("ignore:Checkpoint directory")
def test_the_best_one_that_a_run_was_resumed_from_is_replaced_too(fit, tmp_path):
    trainer_settings = {"monitor": "val/score", "mode": "max", "save_last": False}
    fit(RunCheckpoint(str(tmp_path), **trainer_settings), max_epochs=1)
    [first] = tmp_path.glob("*.ckpt")
    kept, _ = fit(RunCheckpoint(str(tmp_path), **trainer_settings), ckpt_path=str(first))
    assert kept == {"epoch=1-step=8.ckpt": 8}

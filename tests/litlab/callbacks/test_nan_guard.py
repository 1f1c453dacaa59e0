"""Losses and gradients that are not finite, under every way in which a step is made."""

import re

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from torch import nn

from litlab.callbacks import EMA
from litlab.callbacks import nan_guard as guard
from litlab.callbacks.nan_guard import NaNGuard
from litlab.errors import UserError
from tests.litlab.runs.tiny_run import Batches


class Deferred(NaNGuard):
    """As on a device that nobody waits for."""

    def on_train_start(self, trainer, pl_module):
        super().on_train_start(trainer, pl_module)
        self._read_every = trainer.log_every_n_steps


class Model(LightningModule):
    """Every batch is the same: without a bad one, n steps are n steps. Keeps the weights after each step."""

    def __init__(self, spoil=None, optimizer=None, norm=True):
        super().__init__()
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8) if norm else nn.Identity(), nn.Linear(8, 1))
        self.spoil = spoil or (lambda step, batch, loss: loss)
        self.optimizer = optimizer or (lambda p: torch.optim.AdamW(p, lr=0.01))
        self.after, self.logged = [], {}

    def training_step(self, batch, batch_idx):
        inputs = batch[0]
        if self.spoil == "input" and self.global_step == 4:
            inputs = inputs * float("nan")
        loss = self.network(inputs).square().mean()
        return loss if self.spoil == "input" else self.spoil(self.global_step, batch_idx, loss)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.after.append([p.detach().clone() for p in self.parameters()])

    def on_train_epoch_end(self):
        self.logged = dict(self.trainer.callback_metrics)

    def configure_optimizers(self):
        return self.optimizer(self.parameters())

    def train_dataloader(self):
        return Batches(8)


def bad_loss(step, batch, loss):
    return loss + float("nan") if step == 4 else loss  # its gradient is finite


def infinite_loss(step, batch, loss):
    return loss + float("inf") if step == 4 else loss


class _BadGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, loss):
        return loss.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * float("nan")


def bad_gradient(step, batch, loss):
    return _BadGradient.apply(loss) if step == 4 else loss


def overflow(step, batch, loss):
    return loss * 1e30 if step == 4 else loss  # finite, but the squares of its gradient are not


SPOILS = {
    "loss is nan": bad_loss,
    "loss is inf": infinite_loss,
    "gradient is nan": bad_gradient,
    "gradient is inf": overflow,
}


def fit(model, callback, *callbacks, **settings):
    settings = {"max_epochs": 1, "logger": False, "enable_checkpointing": False, **settings}
    trainer = Trainer(
        accelerator="cpu", enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=2,
        callbacks=[callback, *callbacks], **settings,
    )  # fmt: skip
    trainer.fit(model)
    return trainer


def same(ours, others):
    return all(torch.equal(a, b) for a, b in zip(ours, others, strict=True))


@pytest.mark.parametrize("kind", [NaNGuard, Deferred])
@pytest.mark.parametrize("what", SPOILS)
def test_stop_names_the_step(kind, what):
    model = Model(SPOILS[what])
    with pytest.raises(UserError) as raised:
        fit(model, kind())
    assert re.match(rf"nan_guard: the {what} at step 4 \(epoch 0, batch 4, learning rate 0.01\), ", str(raised.value))
    assert "\n" not in str(raised.value)
    assert len(model.after) <= 8
    if kind is NaNGuard:
        assert same(model.parameters(), model.after[3]), "at once, before the step is made"


FUSED = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "sgd": lambda p: torch.optim.SGD(p, 0.01, 0.9, fused=True),
}
PLAIN = {
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01),
    "sgd": lambda p: torch.optim.SGD(p, 0.01, 0.9, weight_decay=0.1),
}


@pytest.mark.parametrize("name", ["adamw", "sgd"])
@pytest.mark.parametrize("optimizers", [PLAIN, FUSED])
@pytest.mark.parametrize("spoil", [*SPOILS.values(), "input"])
def test_a_skipped_step_leaves_everything_as_it_was(optimizers, name, spoil):
    """Eight steps with a bad one end as seven do; a bad input has reached the statistics of the normalisation too."""
    guarded, model = NaNGuard("skip"), Model(spoil, optimizers[name])
    fit(model, guarded)
    assert same(model.after[4], model.after[3])
    for state in model.trainer.optimizers[0].state.values():
        assert all(value.isfinite().all() for value in state.values() if torch.is_tensor(value))
    seven = Model(optimizer=optimizers[name])
    fit(seven, NaNGuard(), limit_train_batches=7)
    assert same(model.parameters(), seven.parameters())
    assert model.network[1].running_mean.isfinite().all()
    if spoil == "input":
        assert torch.equal(model.network[1].running_var, seven.network[1].running_var)
    assert guarded.skipped == 1
    assert guarded.state_dict() == {"skipped": 1}


@pytest.mark.parametrize("action", ["stop", "skip"])
def test_a_guarded_run_is_the_same_to_the_last_bit(action):
    plain, guarded = Model(), Model()
    fit(plain, Callback())
    fit(guarded, NaNGuard(action))
    assert same(plain.parameters(), guarded.parameters())
    assert torch.equal(plain.network[1].running_var, guarded.network[1].running_var)


@pytest.mark.parametrize("algorithm", ["norm", "value"])
def test_clipping_does_not_hide_it(algorithm):
    with pytest.raises(UserError, match=r"the gradient is inf at step 4 "):
        fit(Model(overflow), NaNGuard(), gradient_clip_val=0.5, gradient_clip_algorithm=algorithm)


def test_one_bad_batch_spoils_the_step_it_is_accumulated_in():
    model = Model(lambda step, batch, loss: loss + float("nan") if batch == 2 else loss)
    guarded = NaNGuard("skip")
    fit(model, guarded, accumulate_grad_batches=2)
    assert guarded.skipped == 1
    three = Model(optimizer=model.optimizer)
    fit(three, NaNGuard(), accumulate_grad_batches=2, limit_train_batches=6)
    assert same(model.parameters(), three.parameters())


@pytest.mark.filterwarnings("ignore:The dirpath has changed")
def test_skipped_steps_are_logged_and_counted_on(tmp_path, caplog):
    model = Model(bad_loss)
    with caplog.at_level("INFO"):
        trainer = fit(model, NaNGuard("skip"), ModelCheckpoint(tmp_path), enable_checkpointing=True)
    assert trainer.callback_metrics["train/skipped_steps"] == 1
    assert "the loss is nan at step 4 (epoch 0, batch 4, learning rate 0.01): the step is skipped" in caplog.text
    further = NaNGuard("skip")
    resumed = Trainer(
        max_epochs=2, accelerator="cpu", logger=False, callbacks=[further, ModelCheckpoint(tmp_path / "2")],
        enable_progress_bar=False, enable_model_summary=False, log_every_n_steps=2,
    )  # fmt: skip
    resumed.fit(Model(lambda step, batch, loss: loss * float("nan") if step == 9 else loss),
                ckpt_path=trainer.checkpoint_callback.best_model_path, weights_only=True)  # fmt: skip
    assert further.skipped == 2


def test_skipping_without_an_end_stops(monkeypatch):
    monkeypatch.setattr(guard, "IN_A_ROW", 5)
    model = Model(lambda step, batch, loss: loss * float("nan") if step > 1 else loss)
    with pytest.raises(UserError, match=r"at step 6 .*, the 5th bad step in a row"):
        fit(model, NaNGuard("skip"))


@pytest.mark.parametrize("kind", [NaNGuard, Deferred])
def test_no_checkpoint_is_written_after_it(kind, tmp_path):
    """The last step of an epoch is bad: the checkpoint of that epoch would be the first to hold it."""
    model = Model(lambda step, batch, loss: loss * float("nan") if step == 15 else loss)
    keep = ModelCheckpoint(tmp_path, save_last=True, save_on_exception=True)
    with pytest.raises(UserError, match="at step 15 "):
        fit(model, kind(), keep, EMA(0.9), enable_checkpointing=True, max_epochs=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch=0-step=8.ckpt", "last.ckpt"]
    for path in tmp_path.iterdir():
        state = torch.load(path, weights_only=True)
        assert state["global_step"] == 8
        assert all(value.isfinite().all() for value in state["state_dict"].values())


def test_weights_that_the_optimizer_broke_are_not_written(tmp_path):
    class Breaks(torch.optim.SGD):
        def step(self, closure=None):
            loss = super().step(closure)
            with torch.no_grad():
                self.param_groups[0]["params"][0].mul_(float("nan"))
            return loss

    model = Model(optimizer=lambda p: Breaks(p, 0.01))
    with pytest.raises(UserError, match="weights are not finite after 1 steps"):
        fit(model, NaNGuard(), ModelCheckpoint(tmp_path), enable_checkpointing=True, limit_train_batches=1)
    assert not list(tmp_path.glob("*.ckpt"))


@pytest.mark.parametrize("action", ["stop", "skip"])
def test_infinite_gradients_are_the_scaler_s_own_affair(action):
    """A scale of 2^20 overflows float16 at first, and the scaler lowers it."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
    guarded = NaNGuard(action)
    model = Model(norm=False)
    fit(model, guarded, plugins=[MixedPrecision("16-mixed", "cpu", scaler)])
    assert guarded.skipped == 0
    assert same(model.after[0], model.after[1]), "the scaler has skipped"
    assert not same(model.after[0], model.after[-1])


def test_the_scaler_skips_a_nan_loss():
    model = Model(bad_loss, norm=False)
    fit(model, NaNGuard(), plugins=[MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))])
    assert same(model.after[4], model.after[3])
    assert not same(model.after[5], model.after[4])


def test_gradients_that_no_scale_helps_stop(monkeypatch):
    monkeypatch.setattr(guard, "IN_A_ROW", 6)
    model = Model(lambda step, batch, loss: _BadGradient.apply(loss), norm=False)
    with pytest.raises(UserError, match=r"at step 5 .*, the 6th bad step in a row"):
        fit(model, NaNGuard(), plugins=[MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))])


def test_half_precision_and_sparse_gradients():
    """The norm of a half-precision gradient overflows before the gradient does; sparse ones have no norm."""
    model = Model(lambda step, batch, loss: loss * 1e5 if step == 2 else loss)
    fit(model, NaNGuard(), precision="bf16-true")

    class Sparse(Model):
        def __init__(self, spoil):
            super().__init__(spoil, lambda p: torch.optim.SGD(p, 0.01))
            self.network = nn.EmbeddingBag(9, 1, sparse=True)

        def training_step(self, batch, batch_idx):
            loss = self.network(torch.tensor([[1, 2, 1]])).square().mean()
            return self.spoil(self.global_step, batch_idx, loss)

    guarded, model = NaNGuard("skip"), Sparse(bad_gradient)
    fit(model, guarded)
    assert guarded.skipped == 1
    assert same(model.after[4], model.after[3])

"""Losses and gradients that are not finite, under every way in which a step is made."""

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from torch import nn

from litlab.callbacks import EMA
from litlab.callbacks.nan_guard import NaNGuard
from litlab.errors import UserError
from tests.litlab.callbacks import tiny
from tests.litlab.callbacks.tiny import Tiny, TinyData


def spoil_gradient(loss):
    loss.register_hook(lambda gradient: gradient * float("nan"))
    return loss


class Deferred(NaNGuard):
    """As on a device that nobody waits for."""

    def on_train_start(self, trainer, pl_module):
        super().on_train_start(trainer, pl_module)
        self._read_every = trainer.log_every_n_steps


SPOILS = {
    "": lambda loss: loss,
    "input is nan": lambda loss: loss,
    "loss is nan": lambda loss: loss + float("nan"),  # its gradient is finite
    "loss is inf": lambda loss: loss + float("inf"),
    "gradient is nan": spoil_gradient,
    "gradient overflows": lambda loss: loss * 1e30,  # finite, but its squares are not
}


class Model(Tiny):
    """Spoils a step, and keeps the weights after each one."""

    def __init__(self, spoil="", at=4):
        torch.manual_seed(0)
        super().__init__()
        self.spoil, self.at, self.after = spoil, at, []

    def training_step(self, batch, batch_idx):
        is_bad = self.global_step == self.at
        if is_bad and self.spoil == "input is nan":
            batch[0].fill_(float("nan"))
        loss = super().training_step(batch, batch_idx)
        return SPOILS[self.spoil](loss) if is_bad else loss

    def on_train_batch_end(self, *_):
        self.after.append([p.detach().clone() for p in self.parameters()])


def fit(model, *callbacks, **settings):
    """Fit on eight batches an epoch."""
    settings = {"log_every_n_steps": 2, "limit_val_batches": 0, **settings}
    tiny.fit(".", model, *callbacks, data=TinyData(32, 4), **settings)
    return model


def same(ours, others):
    return all(map(torch.equal, ours, others))


@pytest.mark.parametrize("kind", [NaNGuard, Deferred])
@pytest.mark.parametrize("spoil", [*SPOILS][1:])
def test_it_names_the_step(kind, spoil):
    model = Model(spoil)
    with pytest.raises(
        UserError, match=r"^nan_guard: the loss is .*at step 4 \(epoch 0, batch 4\); lower"
    ):
        fit(model, kind(), gradient_clip_val=0.5)
    if kind is NaNGuard:
        assert same(model.parameters(), model.after[3]), "at once, before the step is made"


@pytest.mark.parametrize("kind", [NaNGuard, Deferred])
def test_every_checkpoint_has_good_weights(kind, tmp_path):
    """The last step of an epoch is bad: the checkpoint of that epoch would be the first to hold
    it.
    """
    keep = ModelCheckpoint(tmp_path, save_last=True, save_on_exception=kind is NaNGuard)
    model = Model("gradient is nan", at=15)
    settings = {"enable_checkpointing": True, "max_epochs": 3, "log_every_n_steps": 3}
    with pytest.raises(UserError, match="at step 15 "):
        fit(model, kind(), keep, EMA(0.9), **settings)
    state = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert state["global_step"] == (15 if kind is NaNGuard else 8)
    assert all(value.isfinite().all() for value in state["state_dict"].values())
    nn.init.constant_(model.network[0].bias, float("nan"))  # by an optimizer
    with pytest.raises(UserError, match="weights are not finite"):
        model.trainer.save_checkpoint(tmp_path / "broken.ckpt")
    assert not (tmp_path / "broken.ckpt").exists()


@pytest.mark.parametrize(
    ("spoil", "scale", "skips"), [("", 2.0**20, 0), ("loss is nan", 2.0**4, 4)]
)
def test_bad_steps_are_the_scaler_s_own_affair(spoil, scale, skips):
    """A scale of 2^20 overflows float16 at first, and the scaler lowers it; it skips a bad loss,
    too.
    """
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    model = fit(Model(spoil), NaNGuard(), plugins=[MixedPrecision("16-mixed", "cpu", scaler)])
    assert same(model.after[skips], model.after[max(0, skips - 1)])
    assert not same(model.after[0], model.after[-1])


def test_a_scaler_that_finds_no_scale_is_stopped(monkeypatch):
    monkeypatch.setattr("litlab.callbacks.nan_guard.IN_A_ROW", 5)
    model = Model()
    model.network[0].register_forward_hook(lambda module, inputs, output: output * float("nan"))
    scaler = torch.amp.GradScaler("cpu")
    with pytest.raises(UserError, match="batch 4"):
        fit(model, NaNGuard(), plugins=[MixedPrecision("16-mixed", "cpu", scaler)])

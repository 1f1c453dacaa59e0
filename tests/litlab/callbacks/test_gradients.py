"""Adaptive clipping and norms of gradients beside what plain torch computes, and when gradients are freed."""

import math
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.loggers import CSVLogger
from torch import nn

from litlab.callbacks import AGC, GradNorms
from litlab.callbacks.gradients import FreeGradients
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer


class Gradients(Callback):
    """Keeps the gradients of each step at its place in the list of callbacks."""

    def __init__(self):
        self.steps = []

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.steps.append({name: p.grad.clone() for name, p in pl_module.named_parameters()})


def test_each_unit_is_clipped_by_the_norm_of_its_weights(tmp_path):
    torch.manual_seed(0)
    model, before, after = Tiny(), Gradients(), Gradients()
    nn.init.zeros_(model.network[1].bias)  # whose norm counts as 0.001
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    make_trainer(tmp_path, max_steps=1, callbacks=[before, AGC(0.05), after]).fit(model, TinyData())
    clipped = 0
    for name, gradient in before.steps[0].items():
        expected = gradient.clone()
        units = [expected] if gradient.ndim < 2 else list(expected)  # views
        of_weights = [weights[name]] if gradient.ndim < 2 else list(weights[name])
        for unit, weight in zip(units, of_weights, strict=True):
            largest = 0.05 * max(weight.norm().item(), 0.001)
            if unit.norm() > largest and not name.startswith("network.4"):  # the last layer
                unit.mul_(largest / unit.norm())
                clipped += 1
        torch.testing.assert_close(after.steps[0][name], expected, msg=lambda text, name=name: f"{name}: {text}")
    assert 0 < clipped < sum(1 if weight.ndim < 2 else len(weight) for weight in weights.values())


def test_norms_are_those_of_the_whole_step_before_it_is_clipped(tmp_path):
    """Two batches are accumulated, the second of three steps is logged."""
    model, seen, logger = Tiny(), Gradients(), CSVLogger(tmp_path)
    rows: list[Any] = []
    logger.log_metrics = lambda metrics, step=None: rows.append((step, metrics))
    callbacks = [GradNorms(), seen, AGC(1e-4)]
    trainer = make_trainer(tmp_path, callbacks=callbacks, accumulate_grad_batches=2, log_every_n_steps=2, logger=logger)
    trainer.fit(model, TinyData(24))
    ((step, metrics),) = [row for row in rows if "grad_norm/total" in row[1]]
    assert step == 1
    norms = {f"grad_norm/{name}": gradient.norm().item() for name, gradient in seen.steps[1].items()}
    assert metrics == pytest.approx(norms | {"grad_norm/total": math.hypot(*norms.values())})


class Noting(Tiny):
    """Notes in each forward pass of the training whether there are gradients."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__()
        self.during, self.after = [], []

    def training_step(self, batch, batch_idx):
        self.during.append(self.network[0].weight.grad is not None)
        return super().training_step(batch, batch_idx)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.after.append(self.network[0].weight.grad is not None)


class Looking(Noting):
    def on_before_zero_grad(self, optimizer):
        pass


@pytest.mark.parametrize("callback", [AGC(), GradNorms()])
def test_a_fused_optimizer_that_unscales_is_refused(tmp_path, callback):
    """What 16-mixed on a GPU is made of: there is no scaler on a CPU."""
    trainer = make_trainer(tmp_path)
    trainer.precision_plugin.scaler = torch.amp.GradScaler("cpu")  # pyright: ignore
    trainer.strategy.optimizers = [torch.optim.AdamW([torch.zeros(1)])]
    callback.on_fit_start(trainer, Tiny())
    trainer.strategy.optimizers = [torch.optim.AdamW([torch.zeros(1)], fused=True)]
    with pytest.raises(UserError, match=r": with 16-mixed a fused optimizer .* model\.optimizer\.fused"):
        callback.on_fit_start(trainer, Tiny())


@pytest.mark.parametrize(
    ("model", "accumulate", "during"),
    [
        (Noting, 1, [False] * 10),
        (Noting, 2, [False, True, False, True, False] * 2),
        (Looking, 1, [False, True, True, True, True] * 2),  # Lightning's way; it frees them before a validation
    ],
)
def test_only_gradients_that_are_accumulated_are_there_in_a_forward_pass(tmp_path, model, accumulate, during):
    def fit(*callbacks):
        module = model()
        trainer = make_trainer(tmp_path, max_epochs=2, accumulate_grad_batches=accumulate, callbacks=[*callbacks])
        trainer.fit(module, TinyData(20, 4))
        return module

    module, plain = fit(FreeGradients()), fit()
    assert module.during == during
    assert all(module.after)
    assert all(torch.equal(one, other) for one, other in zip(module.parameters(), plain.parameters(), strict=True))

"""Adaptive clipping, norms of gradients, when they are freed, and the optimizer's step within the
backward pass.
"""

import math
from copy import deepcopy

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.loggers import CSVLogger
from torch import nn

from litlab.callbacks import AGC, EMA, GradNorms, NaNGuard, OptimizerInBackward
from litlab.callbacks.memory import FreeGradients
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Tiny, TinyData, are_equal, fit, make_trainer
from tests.litlab.checkpointing.resuming import differences, leaves


def keep(steps) -> LambdaCallback:
    """Keeps the gradients of each step at its place in the list of callbacks."""

    def append(trainer, model, optimizer):
        steps.append({name: p.grad.clone() for name, p in model.named_parameters()})

    return LambdaCallback(on_before_optimizer_step=append)


def test_each_unit_is_clipped_by_the_norm_of_its_weights(tmp_path):
    torch.manual_seed(0)
    model, before, after = Tiny(), [], []
    nn.init.zeros_(model.network[1].bias)  # whose norm counts as 0.001
    weights = deepcopy(model.state_dict())
    fit(tmp_path, model, keep(before), AGC(0.05), keep(after), max_steps=1)
    for name, gradient in before[0].items():
        rows, own = (x.flatten(1) if x.ndim > 1 else x[None] for x in (gradient, weights[name]))
        scale = (0.05 * own.norm(dim=1).clamp(min=0.001) / rows.norm(dim=1)).clamp(max=1)
        if name.startswith("network.4"):  # the last layer
            assert scale.min() < 1
            scale.fill_(1)
        torch.testing.assert_close(after[0][name], (rows * scale[:, None]).view_as(gradient))


def test_norms_are_those_of_the_whole_step_before_it_is_clipped(tmp_path, monkeypatch):
    """Two batches are accumulated, the second of three steps is logged."""
    seen, logger, rows = [], CSVLogger(tmp_path), []
    monkeypatch.setattr(
        logger, "log_metrics", lambda metrics, step=None: rows.append((step, metrics))
    )
    options = {"accumulate_grad_batches": 2, "log_every_n_steps": 2, "logger": logger}
    fit(tmp_path, Tiny(), GradNorms(), keep(seen), AGC(1e-4), data=TinyData(24), **options)
    ((step, metrics),) = [row for row in rows if "grad_norm/total" in row[1]]
    assert step == 1
    norms = {f"grad_norm/{name}": part.norm().item() for name, part in seen[1].items()}
    assert metrics == pytest.approx(norms | {"grad_norm/total": math.hypot(*norms.values())})


@pytest.mark.parametrize("callback", [AGC(), GradNorms()])
def test_a_fused_optimizer_that_unscales_is_refused(tmp_path, callback):
    """What 16-mixed on a GPU is made of: there is no scaler on a CPU."""
    trainer = make_trainer(tmp_path)
    trainer.precision_plugin.scaler = torch.amp.GradScaler("cpu")  # pyright: ignore
    trainer.strategy.optimizers = [torch.optim.AdamW([torch.zeros(1)])]
    callback.on_fit_start(trainer, Tiny())
    trainer.strategy.optimizers = [torch.optim.AdamW([torch.zeros(1)], fused=True)]
    with pytest.raises(
        UserError, match=r": with 16-mixed, a fused optimizer .* model\.optimizer\.fused"
    ):
        callback.on_fit_start(trainer, Tiny())


@pytest.mark.parametrize("is_looked_at", [False, True])
def test_only_gradients_that_are_accumulated_are_there_in_a_forward_pass(tmp_path, is_looked_at):
    runs = []
    for callback in (Callback(), FreeGradients()):
        torch.manual_seed(0)
        model, before, after = Tiny(), [], []
        if is_looked_at:
            model.on_before_zero_grad = lambda optimizer: None
        notes = LambdaCallback(on_train_batch_start=note(before), on_train_batch_end=note(after))
        options = {"data": TinyData(20, 4), "max_epochs": 2, "accumulate_grad_batches": 2}
        fit(tmp_path, model, callback, notes, **options)
        assert all(after)
        runs.append((before, model.state_dict()))
    (plain, weights), (freed, others) = runs
    assert plain == [False, True, True, True, True] * 2
    assert freed == (plain if is_looked_at else [False, True, False, True, False] * 2)
    assert are_equal(weights, others)


def note(found):
    return lambda trainer, model, *_: found.append(model.network[0].weight.grad is not None)


class Elsewhere(torch.optim.SGD):
    """Has gradients that are not those of its groups, as torchao's CPUOffloadOptimizer."""

    freed = 0

    def zero_grad(self, set_to_none=True):
        self.freed += 1
        super().zero_grad(set_to_none)


def test_an_optimizer_that_frees_gradients_in_its_own_way_does(tmp_path):
    model = Tiny()
    model.configure_optimizers = lambda: Elsewhere(model.parameters(), lr=0.01)
    trainer = fit(tmp_path, model, FreeGradients())
    # Before forward and backward pass
    assert trainer.optimizers[0].freed == 2 * trainer.global_step


def fit_groups(folder, *callbacks):
    """Fit with two groups, a tied weight and a schedule by step; the model, its state with that of
    the optimizer, and how many gradients there were at once.
    """
    torch.manual_seed(0)
    tied, head = nn.Linear(192, 192), nn.Linear(192, 4)
    model = Tiny(network=nn.Sequential(nn.Flatten(), tied, nn.ReLU(), tied, head))
    weights, counts = [*model.parameters()], []
    for weight in weights:
        weight.register_hook(lambda _: counts.append(sum(w.grad is not None for w in weights)))
    groups = [{"params": head.parameters(), "lr": 0.02}, {"params": tied.parameters()}]
    optimizer = torch.optim.AdamW(groups, lr=0.01, foreach=True)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    by_step = {"scheduler": schedule, "interval": "step"}
    model.configure_optimizers = lambda: ([optimizer], [by_step])
    fit(folder, model, *callbacks, EMA(0.5), data=TinyData(12, 4), max_epochs=2)
    # EMA's weights, rates
    state = dict(leaves([model.state_dict(), optimizer.state_dict()]))
    return model, state, max(counts)


def test_in_backward_it_is_the_same_optimizer_with_one_gradient_at_a_time(tmp_path):
    _, expected, count = fit_groups(tmp_path)
    model, state, count_inside = fit_groups(tmp_path, OptimizerInBackward())
    assert differences(state, expected) == []
    assert (count, count_inside) == (3, 0)  # as a gradient arrives, no other is there
    assert model.trainer.global_step == 6
    model.network(torch.randn(1, 3, 8, 8)).sum().backward()  # after the fit it is a plain model
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("callbacks", "settings", "key"),
    [
        ([], {"accumulate_grad_batches": 2}, "trainer.accumulate_grad_batches"),
        ([], {"strategy": "ddp"}, "trainer.devices"),
        ([NaNGuard()], {}, "NaNGuard"),
    ],
)
def test_in_backward_refuses_what_needs_all_gradients(tmp_path, callbacks, settings, key):
    callback = OptimizerInBackward()
    trainer = make_trainer(tmp_path, callbacks=[*callbacks, callback], **settings)
    with pytest.raises(
        UserError, match=rf"^trainer\.callbacks: OptimizerInBackward .* does not work with {key}; "
    ):
        callback.setup(trainer, Tiny(), "fit")

"""Adaptive clipping and norms of gradients, as numbers of a fit beside what plain torch computes."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.loggers import CSVLogger
from torch import nn

from litlab.callbacks import AGC, GradNorms
from litlab.callbacks.gradients import check_gradients
from litlab.errors import UserError
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")


class Gradients(Callback):
    """Keeps the gradients of each step at its place in the list of callbacks."""

    def __init__(self):
        self.steps = []

    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        self.steps.append({name: p.grad.clone() for name, p in pl_module.named_parameters()})


@pytest.mark.parametrize(("exclude", "left_out"), [(None, "network.4"), ([], "nothing"), (["network.0"], "network.0")])
def test_each_unit_is_clipped_by_the_norm_of_its_weights(tmp_path, exclude, left_out):
    torch.manual_seed(0)
    model, before, after = Tiny(), Gradients(), Gradients()
    nn.init.zeros_(model.network[1].bias)  # whose norm counts as eps
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    trainer = make_trainer(tmp_path, max_steps=1, callbacks=[before, AGC(0.05, 0.01, exclude), after])
    trainer.fit(model, TinyData())
    clipped = 0
    for name, gradient in before.steps[0].items():
        expected = gradient.clone()
        if not name.startswith(left_out):
            units = [expected] if gradient.ndim < 2 else list(expected)  # views
            for unit, weight in zip(units, [weights[name]] if gradient.ndim < 2 else list(weights[name]), strict=True):
                largest = 0.05 * max(weight.norm().item(), 0.01)
                if unit.norm() > largest:
                    unit.mul_(largest / unit.norm())
                    clipped += 1
        torch.testing.assert_close(after.steps[0][name], expected, msg=lambda text, name=name: f"{name}: {text}")
    assert 0 < clipped < sum(1 if w.ndim < 2 else len(w) for w in weights.values())


def test_norms_are_those_of_the_whole_step_before_it_is_clipped(tmp_path):
    """Two batches are accumulated, the second of three steps is logged."""
    torch.manual_seed(0)
    model, seen, logger = Tiny(), Gradients(), CSVLogger(tmp_path)
    trainer = make_trainer(
        tmp_path, callbacks=[GradNorms(), seen, AGC(1e-4)], accumulate_grad_batches=2, log_every_n_steps=2,
        logger=logger,
    )  # fmt: skip
    rows: list[Any] = []
    logger.log_metrics = lambda metrics, step=None: rows.append((step, metrics))
    trainer.fit(model, TinyData(24))
    (row,) = [(step, metrics) for step, metrics in rows if "grad_norm/total" in metrics]
    step, metrics = row
    assert step == 1
    gradients = seen.steps[1]
    expected = {
        f"grad_norm/network.{layer}": math.hypot(
            gradients[f"network.{layer}.weight"].norm(), gradients[f"network.{layer}.bias"].norm()
        )
        for layer in (0, 1, 4)
    }
    assert metrics == pytest.approx(expected | {"grad_norm/total": math.hypot(*expected.values())})


def test_half_precision_does_not_overflow(tmp_path):
    model = Tiny(network=nn.Linear(4, 2).half())
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 6e4)  # whose square is infinite in float16
    callback, logged = GradNorms(), []
    logger = SimpleNamespace(log_metrics=lambda metrics, step: logged.append(metrics))
    trainer: Any = SimpleNamespace(log_every_n_steps=1, global_step=0, loggers=[logger])
    callback._names = {id(p): name for name, p in model.named_parameters()}
    callback.on_before_optimizer_step(trainer, model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert logged[0]["grad_norm/total"] == pytest.approx(6e4 * math.sqrt(10), rel=1e-3)


def test_what_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"^agc: trainer\.gradient_clip_val is 1\.0 .*; set trainer.*null$"):
        make_trainer(tmp_path, callbacks=[AGC()], gradient_clip_val=1.0).fit(Tiny(), TinyData())
    with pytest.raises(UserError, match=r"^agc\.exclude: 'head' matches no parameter"):
        make_trainer(tmp_path, callbacks=[AGC(exclude=["head"])]).fit(Tiny(), TinyData())


@pytest.mark.parametrize("fused", [True, None])
def test_a_fused_optimizer_that_unscales_is_refused(tmp_path, fused):
    """What 16-mixed on a GPU is made of: there is no scaler on a CPU."""
    trainer = make_trainer(tmp_path)
    trainer.precision_plugin.scaler = torch.amp.GradScaler("cpu")  # pyright: ignore
    trainer.strategy.optimizers = [torch.optim.AdamW([torch.zeros(1)], fused=fused)]
    if fused:
        with pytest.raises(UserError, match=r"^agc: with trainer\.precision .* model\.optimizer\.fused"):
            check_gradients(trainer, "agc")
    else:
        check_gradients(trainer, "agc")


def test_a_parameter_of_the_model_itself_has_its_name():
    model = nn.Module()
    model.temperature = nn.Parameter(torch.ones(1))
    model.temperature.grad = torch.full((1,), 2.0)
    callback, logged = GradNorms(), []
    logger = SimpleNamespace(log_metrics=lambda metrics, step: logged.append(metrics))
    trainer: Any = SimpleNamespace(log_every_n_steps=1, global_step=0, loggers=[logger])
    callback._names = {id(model.temperature): "temperature"}
    callback.on_before_optimizer_step(trainer, model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert logged == [{"grad_norm/temperature": 2.0, "grad_norm/total": 2.0}]

"""What the optimizer's part of a step takes: each optimizer, each way of clipping, the norms of all gradients.

python benchmarks/optimizer_steps.py             for the networks of cifar.yaml, text.yaml and forecast.yaml
python benchmarks/optimizer_steps.py --steps 5   shorter

The gradients are random. All variants of a network are measured in turns.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from common import save, summary
from torch import nn

from litlab.callbacks import AGC, GradNorms
from litlab.optim import Muon, orthogonalise
from project.models.cifar_cnn import CifarCNN
from project.models.cifar_muon import CifarMuon
from project.models.lstm_forecaster import LSTMForecaster
from project.models.transformer_classifier import TransformerClassifier


def networks() -> dict[str, Any]:
    """Return the models of the three experiments, and a Transformer of six layers, which has equal matrices."""
    text = partial(TransformerClassifier, vocab_size=20000, max_tokens=96, num_classes=4, positions="learned")
    return {
        "cifar": CifarCNN(width=128, image_shape=(3, 32, 32), num_classes=10),
        "text": text(),
        "text, 6 layers": text(num_layers=6),
        "forecast": LSTMForecaster(segment_length=24, context_length=336, horizon=96, num_targets=7),
    }


def optimizers(model: nn.Module) -> dict[str, Callable[[], Any]]:
    """Return a step of each optimizer that takes the network."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    adamw = partial(torch.optim.AdamW, parameters, lr=1e-6)
    made: dict[str, torch.optim.Optimizer] = {
        "AdamW, one by one": adamw(foreach=False, fused=False),
        "AdamW, foreach": adamw(foreach=True),
        "AdamW, fused": adamw(fused=True),
        "Muon": Muon(parameters, lr=1e-6),
        "CifarMuon": CifarMuon(parameters, lr=1e-6, rest_lr=1e-6, vector_lr=1e-6),
    }
    for optimizer in made.values():
        if isinstance(optimizer, Muon):
            optimizer.divide(model)
    hidden = [p for p in parameters if p.ndim == 2 and min(p.shape) > 1 and max(p.shape) < 10000]
    return {
        **{name: optimizer.step for name, optimizer in made.items()},
        "matrices orthogonalised": lambda: [orthogonalise(p.detach()) for p in hidden],
    }


def clippings(model: nn.Module) -> dict[str, Callable[[], Any]]:
    """Each way of clipping, and the norms of all layers."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer: Any = torch.optim.SGD(parameters)
    logger = SimpleNamespace(log_metrics=lambda values, step: None)
    trainer: Any = SimpleNamespace(log_every_n_steps=1, global_step=0, loggers=[logger])
    agc, norms = AGC(0.1), GradNorms()
    norms._names = {id(p): name for name, p in model.named_parameters()}
    return {
        "clipped by norm": lambda: nn.utils.clip_grad_norm_(parameters, 1.0),
        "clipped by value": lambda: nn.utils.clip_grad_value_(parameters, 0.1),
        "clipped adaptively": lambda: agc.on_before_optimizer_step(trainer, model, optimizer),  # pyright: ignore[reportArgumentType]
        "norms of all layers": lambda: norms.on_before_optimizer_step(trainer, model, optimizer),  # pyright: ignore[reportArgumentType]
    }


def measure(model: nn.Module, steps: int) -> dict[str, dict[str, float]]:
    """Milliseconds of each variant."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.randn_like(parameter)
    variants = {**optimizers(model), **clippings(model)}
    times: dict[str, list[float]] = {name: [] for name in variants}
    for step in range(steps + 1):
        for name, call in variants.items():
            begin = time.perf_counter()
            call()
            if step:  # the first makes the state
                times[name].append(1000 * (time.perf_counter() - begin))
    return {name: summary(values) for name, values in times.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    steps = parser.parse_args().steps
    save("optimizer_steps", {"milliseconds": {name: measure(model, steps) for name, model in networks().items()}})

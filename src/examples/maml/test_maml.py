"""MAML: its tasks, its gradients beside those of a plain loop, and what it learns."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.func import functional_call

from examples.maml.data import Sinusoids
from examples.maml.model import MAML
from litlab.testing import ModuleContract
from tests.litlab.checkpointing.resuming import Cell, Resuming

CONFIG = Path(__file__).with_name("config.yaml")


def test_a_task_is_a_sinusoid_of_the_papers_ranges():
    data = Sinusoids(shots=5, queries=15, batch_size=2000, train_tasks=2000)
    batch = next(data.batches("train"))
    assert (batch["support_x"].shape, batch["query_y"].shape) == ((2000, 5, 1), (2000, 15, 1))
    x, y = (
        torch.cat([batch[f"support_{axis}"], batch[f"query_{axis}"]], dim=1)[..., 0]
        for axis in "xy"
    )
    torch.testing.assert_close(
        y, batch["amplitude"][:, None] * torch.sin(x - batch["phase"][:, None])
    )
    for values, low, high in (
        (x, -5, 5),
        (batch["amplitude"], 0.1, 5),
        (batch["phase"], 0, math.pi),
    ):
        assert low <= values.min() < low + 0.02 * (high - low)
        assert high - 0.02 * (high - low) < values.max() < high


def test_a_task_follows_from_seed_split_epoch_and_number():
    def phases(split: str, epoch: int = 0, **settings) -> torch.Tensor:
        data = Sinusoids(
            **{"batch_size": 10, "val_tasks": 40, "test_tasks": 40, "train_tasks": 40, **settings}
        )
        data.setup()
        numbers = data.samples(split)[torch.arange(40)]
        return data.transform(list(numbers), epoch if split == "train" else None)["phase"]

    assert torch.equal(phases("test"), phases("test"))
    assert torch.equal(phases("train", 3)[:20], phases("train", 3, train_tasks=50)[:20])
    others = [
        phases("test"),
        phases("val"),
        phases("train"),
        phases("train", 1),
        phases("test", seed=1),
    ]
    assert len(torch.cat(others).unique()) == 40 * len(others)


def tasks(**settings) -> dict[str, torch.Tensor]:
    """A batch of six tasks, in float64."""
    data = Sinusoids(**{"shots": 5, "queries": 7, "batch_size": 6, "train_tasks": 12, **settings})
    return {name: part.double() for name, part in next(data.batches("train")).items()}


def model(**settings) -> MAML:
    torch.manual_seed(0)
    return MAML(
        nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)), inner_lr=0.1, **settings
    ).double()


def gradients(model: MAML, batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """What `batch_loss` gives."""
    return list(torch.autograd.grad(model.batch_loss(batch), list(model.parameters())))


def by_hand(
    model: MAML, batch: dict[str, torch.Tensor], steps: int, second_order: bool
) -> list[torch.Tensor]:
    """Algorithm 2 of the paper, task by task; first order: query gradients at the adapted weights,
    summed up.
    """
    start = dict(model.network.named_parameters())
    total = [torch.zeros_like(value) for value in start.values()]
    for sx, sy, qx, qy in zip(
        *(batch[f"{kind}_{axis}"] for kind in ("support", "query") for axis in "xy"), strict=True
    ):
        params = (
            dict(start)
            if second_order
            else {n: p.detach().requires_grad_() for n, p in start.items()}
        )
        for _ in range(steps):
            loss = nn.functional.mse_loss(functional_call(model.network, params, (sx,)), sy)
            slopes = torch.autograd.grad(loss, list(params.values()), create_graph=second_order)
            params = {
                name: params[name] - 0.1 * slope for name, slope in zip(params, slopes, strict=True)
            }
            if not second_order:
                params = {name: value.detach().requires_grad_() for name, value in params.items()}
        loss = nn.functional.mse_loss(functional_call(model.network, params, (qx,)), qy)
        of = list((start if second_order else params).values())
        total = [
            one + other for one, other in zip(total, torch.autograd.grad(loss, of), strict=True)
        ]
    return [one / len(batch["query_y"]) for one in total]


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("first_order", [False, True])
def test_the_gradient_is_that_of_a_loop_over_the_tasks(steps, first_order):
    one, batch = model(inner_steps=steps, first_order=first_order), tasks()
    for found, expected in zip(
        gradients(one, batch), by_hand(one, batch, steps, not first_order), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


class TestContract(ModuleContract):
    config = CONFIG
    settings = ("--data.train_tasks=100", "--model.optimizer.lr=0.05")
    overfit_steps = 40

    def theory(self, batch):
        return batch["query_y"].square().mean().item()


def test_it_learns_to_learn(run, tmp_path):
    short = ["--trainer.accelerator=cpu", "--trainer.max_epochs=1", "--model.optimizer.lr=0.01"]
    few = ["--data.train_tasks=4000", "--data.val_tasks=20", "--data.test_tasks=40"]
    done = run("fit", "--config", CONFIG, *short, *few)
    assert done.code == 0, done.err
    result = json.loads((tmp_path / "lightning_logs/maml/version_0/metrics.json").read_text())[
        "test"
    ]
    assert result["test/loss"] == pytest.approx(result["test/mse_1"])
    assert result["test/mse_10"] < result["test/mse_1"] < 0.7 * result["test/mse_0"]


@pytest.mark.matrix
def test_a_resumed_run_is_exact(team, tmp_path):
    few = ["--data.train_tasks=100", "--data.val_tasks=20", "--data.test_tasks=40"]
    flags = ["--config", str(CONFIG), *few, "--data.batch_size=14"]
    resuming = Resuming(team, tmp_path, lambda cell: flags)
    assert resuming.interrupted(Cell("maml", "kill", "inside", workers=2))[1] == []

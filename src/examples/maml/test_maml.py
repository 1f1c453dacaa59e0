"""MAML: its tasks, its gradients beside those of a plain loop, and what it learns."""

import math
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import mse_loss

from examples.maml.data import Sinusoids
from examples.maml.model import MAML
from litlab.runs.folder import read_json
from litlab.testing import ModuleContract
from tests.litlab.checkpointing.resuming import Cell, Resuming

CONFIG = Path(__file__).with_name("config.yaml")
FEW = ["--data.val_tasks=20", "--data.test_tasks=40"]


def test_a_task_is_a_sinusoid_of_the_papers_ranges():
    data = Sinusoids(shots=5, queries=15, batch_size=2000, train_tasks=2000)
    batch = next(data.batches("train"))
    assert (batch["support_x"].shape, batch["query_y"].shape) == ((2000, 5, 1), (2000, 15, 1))
    x, y = (torch.cat([batch[f"support_{axis}"], batch[f"query_{axis}"]], dim=1) for axis in "xy")
    amplitude, phase = (batch[name][:, None, None] for name in ("amplitude", "phase"))
    torch.testing.assert_close(y, amplitude * torch.sin(x - phase))
    for values, low, high in ((x, -5, 5), (amplitude, 0.1, 5), (phase, 0, math.pi)):
        assert low <= values.min() < low + 0.02 * (high - low)
        assert high - 0.02 * (high - low) < values.max() < high


def test_a_task_follows_from_seed_split_epoch_and_number():
    def phases(split: str, epoch: int = 0, **settings) -> torch.Tensor:
        counts = dict.fromkeys(["train_tasks", "val_tasks", "test_tasks"], 40)
        data = Sinusoids(**counts | settings)
        data.setup()
        numbers = data.samples(split)[torch.arange(40)]
        return data.transform(list(numbers), epoch if split == "train" else None)["phase"]

    assert torch.equal(phases("test"), phases("test"))
    assert torch.equal(phases("train", 3)[:20], phases("train", 3, train_tasks=50)[:20])
    others = [*map(phases, ("test", "val", "train")), phases("train", 1), phases("test", seed=1)]
    assert len(torch.cat(others).unique()) == 40 * len(others)


def loop_over_tasks(
    network: nn.Module, batch: dict[str, torch.Tensor], steps: int, first_order: bool
) -> torch.Tensor:
    """The loss by algorithm 2 of the paper, task by task; first order: slopes are constants."""
    losses = []
    parts = [batch[f"{kind}_{axis}"] for kind in ("support", "query") for axis in "xy"]
    for support_x, support_y, x, y in zip(*parts, strict=True):
        params = dict(network.named_parameters())
        for _ in range(steps):
            loss = mse_loss(functional_call(network, params, (support_x,)), support_y)
            slopes = torch.autograd.grad(loss, [*params.values()], create_graph=not first_order)
            params = {
                name: params[name] - 0.1 * slope for name, slope in zip(params, slopes, strict=True)
            }
        losses.append(mse_loss(functional_call(network, params, (x,)), y))
    return torch.stack(losses).mean()


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("first_order", [False, True])
def test_the_gradient_is_that_of_a_loop_over_the_tasks(steps, first_order):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    model = MAML(network, inner_lr=0.1, inner_steps=steps, first_order=first_order)
    data = Sinusoids(shots=5, queries=7, batch_size=6, train_tasks=12)
    batch = {name: part.double() for name, part in next(data.batches("train")).items()}
    losses = model.double().batch_loss(batch), loop_over_tasks(network, batch, steps, first_order)
    found, expected = (torch.autograd.grad(loss, [*network.parameters()]) for loss in losses)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


class TestContract(ModuleContract):
    config = CONFIG
    settings = ("--data.train_tasks=100", "--model.optimizer.lr=0.05")
    overfit_steps = 40

    def theory(self, batch):
        return batch["query_y"].square().mean().item()


def test_it_learns_to_learn(run, tmp_path):
    short = """
        --trainer.accelerator=cpu --trainer.max_epochs=1 --model.optimizer.lr=0.01
        --data.train_tasks=4000
    """
    run("fit --config", CONFIG, *short.split(), *FEW).check()
    result = read_json(tmp_path / "lightning_logs/maml/version_0/metrics.json")["test"]
    assert result["test/loss"] == pytest.approx(result["test/mse_1"])
    assert result["test/mse_10"] < result["test/mse_1"] < 0.7 * result["test/mse_0"]


@pytest.mark.matrix
def test_a_resumed_run_is_exact(team, tmp_path):
    flags = ["--config", str(CONFIG), *FEW, "--data.train_tasks=100", "--data.batch_size=14"]
    resuming = Resuming(team, tmp_path, lambda cell: flags)
    assert resuming.interrupted(Cell("maml", "kill", "inside", workers=2))[1] == []

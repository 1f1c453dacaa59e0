"""Few-shot regression by MAML: the shipped experiment, from the command line."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.func import functional_call

from project.data.sinusoids import Sinusoids
from project.models.maml import MAML
from tests.conftest import CONFIGS, command, settings_of
from tests.fake_cuda import FEW, expect_warnings
from tests.fake_cuda import on_fake_cuda as on_fake_cuda

CONFIG = CONFIGS / "maml.yaml"
TINY = ["--trainer.accelerator=cpu", "--data.train_tasks=100", "--data.val_tasks=20", "--data.test_tasks=40"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A folder with two short runs: of MAML, and of joint training."""
    root = tmp_path_factory.mktemp("maml")
    short = ["--trainer.max_epochs=1", "--data.train_tasks=6000", "--model.optimizer.lr=0.01"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        for steps in (1, 0):
            fit = ["fit", "--config", CONFIG, *TINY, *short, f"--model.inner_steps={steps}"]
            assert command(patch, *fit) == 0
    return root / "lightning_logs/maml"


def results(run: Path) -> dict[str, float]:
    return json.loads((run / "metrics.json").read_text())["test"]


def test_maml_learns_to_learn_and_joint_training_does_not(trained):
    maml, joint = (results(trained / f"version_{number}") for number in (0, 1))
    names = {"test/loss", "test/mse_0", "test/mse_1", "test/mse_5", "test/mse_10"}
    assert maml.keys() == joint.keys() == names
    assert maml["test/loss"] == pytest.approx(maml["test/mse_1"])
    assert maml["test/mse_1"] < 0.7 * maml["test/mse_0"]
    assert maml["test/mse_10"] < maml["test/mse_1"]
    assert joint["test/loss"] == joint["test/mse_0"]
    assert maml["test/mse_1"] < joint["test/mse_1"]


def test_the_logged_errors_are_exact_means_over_the_tasks(trained):
    run = trained / "version_0"
    checkpoint = next((run / "checkpoints").glob("epoch*.ckpt"))
    network = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
    weights = torch.load(checkpoint, weights_only=True)["state_dict"]
    for parameter, weight in zip(network.parameters(), weights.values(), strict=True):
        parameter.data.copy_(weight)
    batch = next(Sinusoids(batch_size=40, test_tasks=40).batches("test"))
    errors = []
    for task in range(40):
        parameters = dict(network.named_parameters())
        loss = nn.functional.mse_loss(network(batch["support_x"][task]), batch["support_y"][task])
        slopes = torch.autograd.grad(loss, list(parameters.values()))
        moved = {name: value - 0.01 * slope for (name, value), slope in zip(parameters.items(), slopes, strict=True)}
        predicted = functional_call(network, moved, (batch["query_x"][task],))
        errors.append(nn.functional.mse_loss(predicted, batch["query_y"][task]).item())
    assert results(run)["test/mse_1"] == pytest.approx(sum(errors) / 40, rel=1e-4)


def test_the_two_are_compared_in_one_table_and_tested_again(trained, run, monkeypatch):
    monkeypatch.chdir(trained.parents[1])
    monkeypatch.setenv("COLUMNS", "200")
    done = run("compare", "maml/version_0", "maml/version_1")
    assert done.code == 0, done.err
    assert "model.inner_steps" in done.out
    assert "test/mse_10" in done.out
    before = results(trained / "version_0")
    done = run("test", "--run", "maml/version_0")
    assert done.code == 0, done.err
    assert results(trained / "version_0") == before


def test_a_resumed_run_gets_the_same_tasks(run, tmp_path, monkeypatch):
    """It was interrupted after two of the four steps of its second epoch."""
    fit = ["fit", "--config", CONFIG, *TINY, "--trainer.max_epochs=3", "--trainer.log_every_n_steps=1"]
    done = run(*fit)
    assert done.code == 0, done.err
    step = MAML.training_step

    def fail(model: MAML, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        if (model.current_epoch, batch_idx) == (1, 2):
            raise ZeroDivisionError
        return step(model, batch, batch_idx)

    monkeypatch.setattr(MAML, "training_step", fail)
    with pytest.raises(ZeroDivisionError):
        run(*fit)
    monkeypatch.setattr(MAML, "training_step", step)
    done = run("fit", "--resume", "maml/version_1")
    assert done.code == 0, done.err
    folders = [tmp_path / f"lightning_logs/maml/version_{number}" for number in (0, 1)]
    whole, resumed = (torch.load(folder / "checkpoints/last.ckpt", weights_only=True) for folder in folders)
    assert (whole["global_step"], resumed["global_step"]) == (12, 12)
    for name, weight in whole["state_dict"].items():
        assert torch.equal(weight, resumed["state_dict"][name]), name
    assert results(folders[0]) == results(folders[1])


@expect_warnings
def test_steps_on_a_gpu_wait_for_nothing_and_mix_no_devices(on_fake_cuda, run, monkeypatch):
    """The inner gradient is made up: a device that does not exist has no backward pass."""

    def made_up(function):
        def gradient(params):
            assert function(params).shape == ()
            return {name: torch.zeros_like(value) for name, value in params.items()}

        return gradient

    monkeypatch.setattr("project.models.maml.grad", made_up)
    done = run("fit", "--config", CONFIG, *FEW)
    assert done.code == 0, done.err
    assert (on_fake_cuda["train"], on_fake_cuda["test"]) == (3, 2)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--model.network.num_classes=2"], "model.network: it returns (10, 2) for 10 points, not (10, 1)"),
        (["--data.shots=0"], "data.shots: 0 is not valid; it must be at least 1"),
        (["--model.inner_lr=0"], "model.inner_lr: 0 is not valid; it must be above 0"),
    ],
    ids=lambda part: part[0] if isinstance(part, list) else "",
)
def test_refused_in_one_line(run, flags, said):
    done = run("fit", "--config", CONFIG, *TINY, "--trainer.max_epochs=1", *flags)
    assert done.code == 2
    assert f"error: {said}" in done.err.splitlines()[-1]
    assert "Traceback" not in done.err


def test_the_config_is_the_papers():
    own = settings_of(CONFIG)["model"]["init_args"]
    assert (own["inner_lr"], own["inner_steps"], own["optimizer"]["init_args"]["lr"]) == (0.01, 1, 0.001)
    assert settings_of(CONFIG)["data"]["init_args"]["batch_size"] == 25

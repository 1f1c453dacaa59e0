"""Few-shot regression by MAML: the shipped experiment, from the command line."""

import json
from pathlib import Path

import pytest
import torch

from tests.conftest import CONFIGS, command
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

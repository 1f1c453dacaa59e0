"""A module in `augment.steps`: from the fit to the resumed run."""

import pytest
import torch

from litlab.tasks import Classifier
from tests.conftest import CONFIGS

ERASE = "{class_path: torchvision.transforms.v2.RandomErasing, init_args: {p: 0.5}}"
SMALL = (
    "--data.dataset=folder", "--data.batch_size=40", "--trainer.accelerator=cpu", "--trainer.log_every_n_steps=1",
    "--model.network.widths=[4]", "--model.network.hidden=[]",
)  # fmt: skip


class Interrupted(Exception):
    """What ends a fit in the middle."""


@pytest.fixture
def fit(run, images, tmp_path):
    """Starts or resumes a fit of 2 epochs of 4 batches with the steps; returns the last checkpoint."""

    def fit_it(name: str, steps: str) -> dict:
        folder = tmp_path / f"lightning_logs/{name}/version_0"
        config = ("--config", CONFIGS / "cifar_vgg.yaml", "--experiment", name, *SMALL, f"--data.path={images}")
        short = ("--trainer.max_epochs=2", "--test_after_fit=false", "--checkpoint.every_n_train_steps=1")
        resumes = folder.exists()
        done = run("fit", *(("--resume", folder) if resumes else (*config, *short, f"--data.augment.steps={steps}")))
        assert done.code == 0, done.err
        return torch.load(folder / "checkpoints/last.ckpt", weights_only=True)

    return fit_it


def test_a_run_interrupted_within_an_epoch_has_the_bits_of_a_whole_one(fit, run, monkeypatch):
    whole = fit("whole", f"[{ERASE}]")
    assert whole["global_step"] == 8
    assert "augment" not in whole["datamodule_hyper_parameters"], "a checkpoint holds plain values"
    assert run("test", "--run", "whole").code == 0
    step = Classifier.training_step

    def interrupted(model, batch, batch_idx):
        if model.global_step == 6:
            raise Interrupted
        return step(model, batch, batch_idx)

    monkeypatch.setattr(Classifier, "training_step", interrupted)
    with pytest.raises(Interrupted):
        fit("parts", f"[{ERASE}]")
    monkeypatch.setattr(Classifier, "training_step", step)
    resumed = fit("parts", "")
    without = fit("without", "[]")
    for name, value in whole["state_dict"].items():
        assert torch.equal(resumed["state_dict"][name], value), name
    assert any(not torch.equal(value, without["state_dict"][name]) for name, value in whole["state_dict"].items())


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ("[{class_path: torch.optim.Adam}]", "torch.optim.Adam does not correspond to a subclass of Module"),
        ("[5]", "data.augment.steps"),
    ],
)
def test_mistakes(run, images, steps, says):
    config = ("--config", CONFIGS / "cifar_vgg.yaml", *SMALL, f"--data.path={images}")
    done = run("fit", *config, f"--data.augment.steps={steps}")
    assert done.code == 2
    assert says in done.err
    assert done.err.count("error: ") == 1

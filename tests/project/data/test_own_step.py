"""The augmentation of one's own that docs/images.md shows, and one of torchvision: from the fit to the resumed run."""

import pytest
import torch

from litlab.tasks import Classifier
from tests.conftest import CONFIGS

SOLARISE = "{class_path: project.data.solarise.Solarise, init_args: {probability: 0.3}}"


class Interrupted(Exception):
    """What ends a fit in the middle."""


@pytest.fixture
def fit(run, images, own_part, tmp_path):
    """Starts or resumes a fit of 2 epochs of 4 batches with the steps; returns the last checkpoint."""
    overlay = own_part("images.md", "data/solarise.py")
    small = ("--model.network.widths=[4, 4]", "--model.network.hidden=[]", "--data.batch_size=40")
    data = ("--data.dataset=folder", f"--data.path={images}", "--trainer.accelerator=cpu", "--trainer.max_epochs=2")
    short = ("--trainer.log_every_n_steps=1", "--test_after_fit=false", "--checkpoint.every_n_train_steps=1")

    def fit_it(name: str, *flags: str) -> dict:
        folder = tmp_path / f"lightning_logs/{name}/version_0"
        config = ("--config", CONFIGS / "cifar_vgg.yaml", "--config", overlay, *small, *data, *short, *flags)
        done = run("fit", *(("--resume", folder) if folder.exists() else (*config, "--experiment", name)))
        assert done.code == 0, done.err
        return torch.load(folder / "checkpoints/last.ckpt", weights_only=True)

    return fit_it


def test_a_run_interrupted_within_an_epoch_has_the_bits_of_a_whole_one(fit, monkeypatch):
    whole = fit("whole")
    assert whole["global_step"] == 8
    step = Classifier.training_step

    def interrupted(model, batch, batch_idx):
        if model.global_step == 6:
            raise Interrupted
        return step(model, batch, batch_idx)

    monkeypatch.setattr(Classifier, "training_step", interrupted)
    with pytest.raises(Interrupted):
        fit("parts")
    monkeypatch.setattr(Classifier, "training_step", step)
    resumed = fit("parts")
    assert resumed["global_step"] == 8
    for name, value in whole["state_dict"].items():
        assert torch.equal(resumed["state_dict"][name], value), name


def test_a_run_is_tested_by_its_folder_alone(fit, run):
    assert "augment" not in fit("one")["datamodule_hyper_parameters"], "a checkpoint holds plain values"
    done = run("test", "--run", "last")
    assert done.code == 0, done.err


def test_each_changes_what_is_trained_on(fit):
    with_steps, without = fit("with", f"--data.augment.steps=[{SOLARISE}]"), fit("without", "--data.augment.steps=[]")
    assert any(not torch.equal(value, without["state_dict"][name]) for name, value in with_steps["state_dict"].items())


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ("[{class_path: torch.nn.Upsample, init_args: {scale_factor: 2}}]",
         "data.augment.steps: Upsample returns (40, 3, 64, 64)"),
        ("[{class_path: project.data.solarise.Solarize}]",
         "project.data.solarise has no 'Solarize'; did you mean 'Solarise'?"),
        ("[{class_path: project.data.solarise.Solarise, init_args: {odds: 1}}]", "Solarise has no 'odds'"),
        ("[{class_path: litlab.data.images.AugmentStep}]", "AugmentStep is abstract"),
        ("[{class_path: torch.optim.Adam}]", "torch.optim.Adam does not correspond to a subclass of Module"),
        ("[5]", "data.augment.steps"),
    ],
)  # fmt: skip
def test_mistakes(run, images, own_part, steps, says):
    own_part("images.md", "data/solarise.py")
    data = ("--data.dataset=folder", f"--data.path={images}", "--data.batch_size=40", "--trainer.accelerator=cpu")
    quick = ("--trainer.log_every_n_steps=1", "--model.network.widths=[4]", "--model.network.hidden=[]")
    done = run("fit", "--config", CONFIGS / "cifar_vgg.yaml", *data, *quick, f"--data.augment.steps={steps}")
    assert done.code == 2
    assert says in done.err
    assert done.err.count("error: ") == 1

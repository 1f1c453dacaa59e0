"""What every LightningModule must pass: name its config and its short settings, inherit, done.

class TestMine(ModuleBattery):
    config = "mine.yaml"
    settings = ("--model.width=16",)
    loss_at_start = math.log(10)
"""

import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer

from litlab.cli.experiment_cli import ExperimentCLI
from litlab.cli.start import quiet, register_classes

CONFIGS = Path(__file__).parents[1] / "configs"


class WithoutRunning(ExperimentCLI):
    """Builds the data, model and Trainer that a command line describes, and stops there."""

    def _run_subcommand(self, subcommand: str) -> None:
        self.model.trainer = self.datamodule.trainer = self.trainer
        self.trainer.strategy._lightning_module = self.model


def loss_of(result: Any) -> torch.Tensor:
    """The loss in what `training_step` returns: itself, or in a dict."""
    return result["loss"] if isinstance(result, dict) else result


class ModuleBattery:
    """Tests of one module with its data; not collected itself, as its name does not start with Test."""

    config: str | Path  # file in configs/, or a whole path
    settings: tuple[str, ...] = ()  # what makes the experiment small enough for a test
    loss_at_start: float  # from theory: ln(number of classes) for cross-entropy; or override `theory`
    tolerance = 0.15  # relative, of the loss at the start
    overfit_steps = 60

    def theory(self, batch) -> float:
        """The loss of the network as it is before training, on this batch."""
        return self.loss_at_start

    def least_loss(self, model: LightningModule) -> float:
        """What the loss can't go below: label smoothing keeps it above zero."""
        smoothing = getattr(model, "label_smoothing", 0.0)
        if not smoothing:
            return 0.0
        classes = model.hparams["num_classes"]
        hit, miss = 1 - smoothing + smoothing / classes, smoothing / classes
        return -hit * math.log(hit) - (classes - 1) * miss * math.log(miss)

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)

    @pytest.fixture
    def build(self, monkeypatch, images, texts, series):
        def build_it(*further: str) -> tuple[LightningModule, LightningDataModule, Trainer]:
            settings = [
                setting.format(images=images, texts=texts, series=series) for setting in (*self.settings, *further)
            ]
            common = [
                "--trainer.accelerator=cpu",
                "--trainer.logger=false",
                "--checkpoint=null",
                "--early_stopping=null",
            ]
            arguments = ["project", "fit", "--config", str(CONFIGS / self.config), *common, *settings]
            monkeypatch.setattr(sys, "argv", arguments)
            quiet()
            register_classes()
            cli = WithoutRunning()
            return cli.model, cli.datamodule, cli.trainer

        return build_it

    def test_forward_is_finite_and_loss_starts_near_its_theory(self, build):
        model, data, _ = build()
        data.prepare_data()
        data.setup("fit")
        batch = data.on_after_batch_transfer(next(iter(data.train_dataloader())), 0)
        model.log = model.log_dict = lambda *arguments, **settings: None  # Lightning's work in a fit only
        loss = loss_of(model.training_step(batch, 0))
        assert torch.isfinite(loss)
        assert loss.item() == pytest.approx(self.theory(batch), rel=self.tolerance)

    def test_one_step_changes_every_trained_parameter_and_no_other(self, build):
        model, data, trainer = build(
            "--trainer.max_steps=1", "--trainer.limit_val_batches=0", "--trainer.precision=32-true"
        )
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        trainer.fit(model, data)
        for name, parameter in model.named_parameters():
            changed = not torch.equal(before[name], parameter)
            assert changed == parameter.requires_grad, name

    @pytest.mark.filterwarnings("ignore:You requested to overfit but enabled train dataloader shuffling")
    def test_overfits_one_batch(self, build):
        steps = f"--trainer.max_epochs={self.overfit_steps}"
        model, data, trainer = build(steps, "--trainer.overfit_batches=1", "--trainer.limit_val_batches=0")
        losses: list[float] = []
        step = model.training_step

        def remember(batch, batch_idx):
            result = step(batch, batch_idx)
            losses.append(loss_of(result).item())
            return result

        model.training_step = remember
        trainer.fit(model, data)
        # What counts is how much of the way to its least it went.
        least = self.least_loss(model)
        assert losses[-1] - least < 0.35 * (losses[0] - least)

    def test_the_same_twice(self, build):
        weights = []
        for _ in range(2):
            model, data, trainer = build("--trainer.max_steps=3", "--trainer.limit_val_batches=0")
            trainer.fit(model, data)
            weights.append({name: weight.clone() for name, weight in model.state_dict().items()})
        for name in weights[0]:
            assert torch.equal(weights[0][name], weights[1][name]), name

"""What every LightningModule must pass: inherit, and name its config and the settings that make it small.

class TestMine(ModuleContract):
    config = Path("configs/mine.yaml").absolute()
    settings = ("--model.width=16", "--data.path={images}")  # `images` is a fixture
    loss_at_start = math.log(10)
"""

import math
from collections.abc import Callable
from pathlib import Path
from string import Formatter
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningDataModule, LightningModule, Trainer

from litlab.cli import fit
from litlab.cli.config import Command
from litlab.cli.quiet import silence_noise
from litlab.cli.trainer import build_trainer

Built = tuple[LightningModule, LightningDataModule, Trainer]


def build_experiment(*flags: str) -> Built:
    """Return the model, data and Trainer that a command line of ``fit`` describes, connected and not run."""
    silence_noise()
    experiment = fit.build(Command(["fit", *flags]))
    trainer = build_trainer(experiment, None)
    experiment.model.trainer = experiment.data.trainer = trainer
    trainer.strategy.connect(experiment.model)
    return experiment.model, experiment.data, trainer


def loss_of(result: Any) -> torch.Tensor:
    """Return the loss in what `training_step` returns: itself, or in a dict."""
    return result["loss"] if isinstance(result, dict) else result


class ModuleContract:
    """Tests of one module with its data; not collected itself, as its name does not start with Test.

    Attributes:
        config: The experiment's config.
        settings: Flags that make it small enough for a test; ``{name}`` is what the fixture of that name gives.
        loss_at_start: The loss before training, from theory: ln(number of classes) for cross-entropy. Override `theory`
            where it depends on the batch.
        tolerance: Relative, of the loss at the start.
        overfit_steps: After how many steps on one batch most of its loss must be gone.
    """

    config: Path
    settings: tuple[str, ...] = ()
    loss_at_start: float
    tolerance = 0.15
    overfit_steps = 60

    def theory(self, batch: Any) -> float:
        """Return the loss of the network as it is before training, on this batch."""
        return self.loss_at_start

    def least_loss(self, model: LightningModule) -> float:
        """Return what the loss can't go below: label smoothing keeps it above zero."""
        smoothing = getattr(model, "label_smoothing", 0.0)
        if not smoothing:
            return 0.0
        classes = model.hparams["num_classes"]
        hit, miss = 1 - smoothing + smoothing / classes, smoothing / classes
        return -hit * math.log(hit) - (classes - 1) * miss * math.log(miss)

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

    @pytest.fixture
    def build(self, request: pytest.FixtureRequest) -> Callable[..., Built]:
        """Build the experiment, with further flags."""

        def with_fixtures(setting: str) -> str:
            names = {name for _, name, _, _ in Formatter().parse(setting) if name}
            return setting.format(**{name: request.getfixturevalue(name) for name in names})

        def build_it(*further: str) -> Built:
            own = [with_fixtures(setting) for setting in (*self.settings, *further)]
            common = [
                "--trainer.accelerator=cpu",
                "--trainer.logger=false",
                "--checkpoint=null",
                "--early_stopping=null",
            ]
            return build_experiment("--config", str(self.config), *common, *own)

        return build_it

    def test_forward_is_finite_and_loss_starts_near_its_theory(self, build: Callable[..., Built]) -> None:
        """The first loss is that of an untrained network."""
        model, data, _ = build()
        data.prepare_data()
        data.setup("fit")
        batch = data.on_after_batch_transfer(next(iter(data.train_dataloader())), 0)
        model.log = model.log_dict = lambda *arguments, **settings: None  # Lightning's work in a fit only
        loss = loss_of(model.training_step(batch, 0))
        assert torch.isfinite(loss)
        assert loss.item() == pytest.approx(self.theory(batch), rel=self.tolerance)

    def test_one_step_changes_every_trained_parameter_and_no_other(self, build: Callable[..., Built]) -> None:
        """Every parameter that is trained gets a gradient."""
        model, data, trainer = build(
            "--trainer.max_steps=1", "--trainer.limit_val_batches=0", "--trainer.precision=32-true"
        )
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        trainer.fit(model, data)
        for name, parameter in model.named_parameters():
            changed = not torch.equal(before[name], parameter)
            assert changed == parameter.requires_grad, name

    @pytest.mark.filterwarnings("ignore:You requested to overfit but enabled train dataloader shuffling")
    def test_overfits_one_batch(self, build: Callable[..., Built]) -> None:
        """It can memorise a batch."""
        steps = f"--trainer.max_epochs={self.overfit_steps}"
        model, data, trainer = build(steps, "--trainer.overfit_batches=1", "--trainer.limit_val_batches=0")
        losses: list[float] = []
        step = model.training_step

        def remember(batch: Any, batch_idx: int) -> Any:
            result = step(batch, batch_idx)
            losses.append(loss_of(result).item())
            return result

        model.training_step = remember
        trainer.fit(model, data)
        # What counts is how much of the way to its least it went.
        least = self.least_loss(model)
        assert losses[-1] - least < 0.35 * (losses[0] - least)

    def test_the_same_twice(self, build: Callable[..., Built]) -> None:
        """The same seed gives the same weights."""
        weights = []
        for _ in range(2):
            model, data, trainer = build("--trainer.max_steps=3", "--trainer.limit_val_batches=0")
            trainer.fit(model, data)
            weights.append({name: weight.clone() for name, weight in model.state_dict().items()})
        for name in weights[0]:
            assert torch.equal(weights[0][name], weights[1][name]), name

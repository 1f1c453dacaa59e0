"""Contract tests: what every LightningModule of a team must pass. Needs pytest.

Inherit, and name the config and the settings that make the experiment small:

    class TestMine(ModuleContract):
        config = Path("configs/mine.yaml").absolute()
        settings = ("--model.width=16", "--data.path={images}")  # `images` is a fixture
        loss_at_start = math.log(10)
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from torch import Tensor

from litlab.cli import fit
from litlab.cli.config import Command
from litlab.cli.quiet import silence_noise
from litlab.cli.trainer import build_trainer

Experiment = tuple[LightningModule, LightningDataModule, Trainer]
SMALL = ("--trainer.accelerator=cpu", "--trainer.logger=false", "--trainer.limit_val_batches=0", "--checkpoint=null")


def build_experiment(*flags: str) -> Experiment:
    """Return the model, data and Trainer that a command line of ``fit`` describes, connected and not run."""
    silence_noise()
    experiment = fit.build(Command(["fit", *flags]))
    trainer = build_trainer(experiment, None)
    experiment.model.trainer = experiment.data.trainer = trainer
    trainer.strategy.connect(experiment.model)
    return experiment.model, experiment.data, trainer


class Losses(Callback):
    """Keeps the first batch of a fit and the loss of each step."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.values: list[float] = []

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        loss = outputs["loss"] if isinstance(outputs, dict) else outputs
        self.values.append(loss.item())
        if len(self.values) == 1:
            self.batch = batch


class ModuleContract:
    """Tests of one module with its data; not collected itself, as its name does not start with Test.

    Attributes:
        config: The experiment's config.
        settings: Flags that make it small enough for a test; ``{name}`` is what the fixture of that name gives.
        loss_at_start: The loss before training, from theory: ln(number of classes) for cross-entropy. Override `theory`
            where it depends on the batch.
        tolerance: Relative, of the loss at the start.
        overfit_steps: Steps on one batch after which `overfit_share` of its first loss is left at most.
        overfit_share: As label smoothing keeps a loss above zero, it may have to be larger.
    """

    config: Path
    settings: tuple[str, ...] = ()
    loss_at_start: float
    tolerance = 0.15
    overfit_steps = 60
    overfit_share = 0.35

    def theory(self, batch: Any) -> float:
        """Return the loss of the network as it is before training, on this batch."""
        return self.loss_at_start

    @pytest.fixture
    def build(self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Any) -> Callable[..., Experiment]:
        """Build the experiment, with further flags."""
        monkeypatch.chdir(tmp_path)

        class Fixtures(dict[str, Any]):
            def __missing__(self, name: str) -> Any:
                return request.getfixturevalue(name)

        settings = [setting.format_map(Fixtures()) for setting in self.settings]
        return lambda *flags: build_experiment(
            "--config", str(self.config), *SMALL, "--early_stopping=null", *settings, *flags
        )

    def test_the_loss_starts_near_its_theory_and_a_step_changes_what_is_trained(
        self, build: Callable[..., Experiment]
    ) -> None:
        """Every parameter that is trained gets a gradient, and no other one changes."""
        model, data, trainer = build("--trainer.max_steps=1", "--trainer.precision=32-true")
        before, losses = _copy_weights(model), _fit(model, data, trainer)
        theory = self.theory(losses.batch)
        assert losses.values[0] == pytest.approx(theory, rel=self.tolerance), (
            f"the first loss is {losses.values[0]:.4g}, and {theory:.4g} by theory; check the loss, the initial weights "
            "of the last layer, and whether outputs and labels have the same scale"
        )
        for name, parameter in model.named_parameters():
            is_changed = not parameter.equal(before[name])
            assert is_changed == parameter.requires_grad, (
                f"{name}: requires_grad is {parameter.requires_grad}, and a step has "
                f"{'changed it' if is_changed else 'not changed it; check that forward uses it'}"
            )

    @pytest.mark.filterwarnings("ignore:You requested to overfit but enabled train dataloader shuffling")
    def test_overfits_one_batch(self, build: Callable[..., Experiment]) -> None:
        """It can memorise a batch."""
        losses = _fit(*build(f"--trainer.max_epochs={self.overfit_steps}", "--trainer.overfit_batches=1"))
        first, last = losses.values[0], losses.values[-1]
        assert last < self.overfit_share * first, (
            f"on one batch the loss went from {first:.4g} to {last:.4g} in {self.overfit_steps} steps, not below "
            f"{self.overfit_share:.0%} of it; check that labels belong to their inputs, the learning rate and dropout"
        )

    def test_the_same_twice(self, build: Callable[..., Experiment]) -> None:
        """The same seed gives the same weights."""
        weights = []
        for _ in range(2):
            model, data, trainer = build("--trainer.max_steps=3")
            _fit(model, data, trainer)
            weights.append(_copy_weights(model))
        different = [name for name, weight in weights[0].items() if not weight.equal(weights[1][name])]
        assert not different, f"{different[0]} differs in a second fit; check for random numbers that no seed sets"


def _fit(model: LightningModule, data: LightningDataModule, trainer: Trainer) -> Losses:
    losses = Losses()
    trainer.callbacks.append(losses)  # pyright: ignore[reportAttributeAccessIssue]
    trainer.fit(model, data)
    return losses


def _copy_weights(model: LightningModule) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in model.state_dict().items()}

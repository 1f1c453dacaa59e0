"""Contract tests: what every LightningModule of a team must pass. Needs pytest.

Inherit, and name the config and the settings that make the experiment small:

    class TestMine(ModuleContract):
        config = Path("configs/mine.yaml").absolute()
        settings = ("--model.width=16", "--data.path={images}")  # `images` is a fixture
        loss_at_start = math.log(10)
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer

from litlab.cli import fit
from litlab.cli.config import Command
from litlab.cli.noise import silence_noise

Experiment = tuple[LightningModule, LightningDataModule, Trainer]
SMALL = (
    "--trainer.accelerator=cpu", "--trainer.precision=32-true", "--trainer.logger=false",
    "--trainer.limit_val_batches=0", "--checkpoint=null", "--early_stopping=null",
)  # fmt: skip


def build_experiment(*flags: str) -> Experiment:
    """Return the model, data and Trainer that a command line of ``fit`` describes, connected and
    not run.
    """
    silence_noise()
    experiment = fit.build_experiment(Command(["fit", *flags]))
    trainer = fit.build_trainer(experiment, None)
    experiment.model.trainer = experiment.data.trainer = trainer
    trainer.strategy.connect(experiment.model)
    return experiment.model, experiment.data, trainer


class Losses(Callback):
    """Keeps the loss of each step."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.values.append(outputs["loss"].item())


class ModuleContract:
    """Tests of one module with its data; not collected itself, as its name does not start with
    Test.

    Attributes:
        config: The experiment's config.
        settings: Flags that make it small enough for a test; ``{name}`` is what the fixture of that
            name gives.
        loss_at_start: The loss before training, from theory: ln(number of classes) for
            cross-entropy. Override `theory` where it depends on the batch.
        tolerance: Relative, of the loss at the start.
        overfit_steps: Steps on one batch after which `overfit_share` of its first loss is left at
            most.
        overfit_share: It may have to be larger where label smoothing keeps a loss above zero.
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
    def build(
        self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Any
    ) -> Callable[..., Experiment]:
        """Build the experiment, with further flags."""
        monkeypatch.chdir(tmp_path)

        def fill_in(setting: str) -> str:
            return re.sub(
                r"\{(\w+)\}", lambda match: str(request.getfixturevalue(match[1])), setting
            )

        def build_it(*flags: str) -> Experiment:
            settings = [fill_in(setting) for setting in (*self.settings, *flags)]
            return build_experiment("--config", str(self.config), *SMALL, *settings)

        return build_it

    def test_the_loss_starts_near_its_theory(self, build: Callable[..., Experiment]) -> None:
        """The first loss is that of an untrained network."""
        model, data, _ = build()
        data.prepare_data()
        data.setup("fit")
        batch = data.on_after_batch_transfer(next(iter(data.train_dataloader())), 0)
        model.log = model.log_dict = lambda *args, **kwargs: None  # Lightning's work in a fit only
        outputs: Any = model.training_step(batch, 0)
        loss = (outputs["loss"] if isinstance(outputs, dict) else outputs).item()
        theory = self.theory(batch)
        assert loss == pytest.approx(theory, rel=self.tolerance), (
            f"the loss starts at {loss:.4g}, not {theory:.4g}; check the initial weights and what "
            "the loss compares"
        )

    def test_one_step_changes_every_trained_parameter_and_no_other(
        self, build: Callable[..., Experiment]
    ) -> None:
        """Every parameter that is trained gets a gradient."""
        model, data, trainer = build("--trainer.max_steps=1")
        before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        trainer.fit(model, data)
        for name, parameter in model.named_parameters():
            is_same = parameter.equal(before[name])
            assert is_same != parameter.requires_grad, (
                f"{name}: unchanged {is_same}; check requires_grad and forward"
            )

    @pytest.mark.filterwarnings(
        "ignore:You requested to overfit but enabled train dataloader shuffling"
    )
    def test_overfits_one_batch(self, build: Callable[..., Experiment]) -> None:
        """It can memorise a batch."""
        model, data, trainer = build(
            f"--trainer.max_epochs={self.overfit_steps}", "--trainer.overfit_batches=1"
        )
        losses = Losses()
        trainer.callbacks.append(losses)  # pyright: ignore[reportAttributeAccessIssue]
        trainer.fit(model, data)
        first, last = losses.values[0], losses.values[-1]
        assert last < self.overfit_share * first, (
            f"on one batch the loss went from {first:.4g} to {last:.4g} only in "
            f"{self.overfit_steps} steps; check the labels and the learning rate, or raise "
            "overfit_steps"
        )

    def test_the_same_twice(self, build: Callable[..., Experiment]) -> None:
        """The same seed gives the same weights."""
        weights = []
        for _ in range(2):
            model, data, trainer = build("--trainer.max_steps=3")
            trainer.fit(model, data)
            weights.append(model.state_dict())
        differing = [
            name for name, weight in weights[0].items() if not weight.equal(weights[1][name])
        ]
        assert not differing, (
            f"{differing} differ in a second fit; check for random numbers that no seed sets"
        )

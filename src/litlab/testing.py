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
from torch import Tensor

from litlab.cli import fit
from litlab.cli.config import Command
from litlab.cli.quiet import silence_noise
from litlab.cli.trainer import build_trainer

SMALL = (
    "--trainer.accelerator=cpu", "--trainer.precision=32-true", "--trainer.logger=false",
    "--trainer.limit_val_batches=0", "--checkpoint=null", "--early_stopping=null",
)  # fmt: skip


def build_experiment(*flags: str) -> tuple[LightningModule, LightningDataModule, Trainer]:
    """Return the model, data and Trainer that a command line of ``fit`` describes, connected and not run."""
    silence_noise()
    experiment = fit.build(Command(["fit", *flags]))
    trainer = build_trainer(experiment, None)
    experiment.model.trainer = experiment.data.trainer = trainer
    trainer.strategy.connect(experiment.model)
    return experiment.model, experiment.data, trainer


class Record(Callback):
    """Keeps what the tests need of a fit: its weights before and after, the loss of each step, the last batch."""

    def __init__(self, model: LightningModule) -> None:
        self.model = model
        self.before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        self.losses: list[float] = []

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        loss: Tensor = outputs["loss"] if isinstance(outputs, dict) else outputs
        self.losses.append(loss.item())
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
    def fit(self, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: Any) -> Callable[..., Record]:
        """Fit the experiment, with further flags."""
        monkeypatch.chdir(tmp_path)

        def fill_in(setting: str) -> str:
            return re.sub(r"\{(\w+)\}", lambda match: str(request.getfixturevalue(match[1])), setting)

        def fit_experiment(*flags: str) -> Record:
            settings = [fill_in(setting) for setting in self.settings]
            model, data, trainer = build_experiment("--config", str(self.config), *SMALL, *settings, *flags)
            record = Record(model)
            trainer.callbacks.append(record)  # pyright: ignore[reportAttributeAccessIssue]
            trainer.fit(model, data)
            return record

        return fit_experiment

    def test_first_loss_and_first_step(self, fit: Callable[..., Record]) -> None:
        """The first loss is that of an untrained network; a step changes every parameter that is trained, no other."""
        record = fit("--trainer.max_steps=1")
        first, theory = record.losses[0], self.theory(record.batch)
        assert first == pytest.approx(theory, rel=self.tolerance), (
            f"the loss starts at {first:.4g}, not {theory:.4g}; check the initial weights and what the loss compares"
        )
        for name, parameter in record.model.named_parameters():
            is_changed = not parameter.equal(record.before[name])
            assert is_changed == parameter.requires_grad, (
                f"{name}: changed {is_changed}; check requires_grad and forward"
            )

    @pytest.mark.filterwarnings("ignore:You requested to overfit but enabled train dataloader shuffling")
    def test_overfits_one_batch(self, fit: Callable[..., Record]) -> None:
        """It can memorise a batch."""
        losses = fit(f"--trainer.max_epochs={self.overfit_steps}", "--trainer.overfit_batches=1").losses
        first, last = losses[0], losses[-1]
        assert last < self.overfit_share * first, (
            f"on one batch the loss went from {first:.4g} to {last:.4g} only; check the labels and the learning rate"
        )

    def test_the_same_twice(self, fit: Callable[..., Record]) -> None:
        """The same seed gives the same weights."""
        first, second = (fit("--trainer.max_steps=3").model.state_dict() for _ in range(2))
        differing = [name for name in first if not first[name].equal(second[name])]
        assert not differing, f"{differing} differ in a second fit; check for random numbers that no seed sets"

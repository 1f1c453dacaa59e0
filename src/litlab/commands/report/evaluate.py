"""The checkpoint of a run, tested once more for what no file of the run has."""

import logging
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from litlab.cli.config import Command
from litlab.cli.fit import build
from litlab.cli.quiet import silence_noise
from litlab.cli.trainer import build_trainer
from litlab.commands.report.kinds import KINDS, Classification, Forecasting, Regression
from litlab.data import ExperimentData
from litlab.errors import UserError
from litlab.runs.folder import RunFolder
from litlab.runs.page import Section

# One process on whatever device there is; nothing is drawn, logged or compiled.
TEST_FLAGS = (
    "--trainer.accelerator=auto", "--trainer.devices=1", "--trainer.num_nodes=1", "--trainer.strategy=auto",
    "--trainer.logger=false", "--trainer.callbacks=null", "--trainer.profiler=null", "--compile=null",
    "--activation_checkpointing=null", "--vram=null",
)  # fmt: skip


class Predictions(Callback):
    """Gives each batch of a test to what knows this kind of predictions, if any does."""

    collector: Classification | Forecasting | Regression | None = None

    def on_test_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:  # fmt: skip
        if dataloader_idx or not isinstance(outputs, dict):
            return
        if batch_idx == 0:
            kind = next((kind for kind in KINDS if kind.fits(outputs, batch)), None)
            self.collector = kind(trainer, pl_module) if kind else None
        if self.collector is not None:
            self.collector.add(outputs, batch, batch_idx)


def evaluate(run: RunFolder, generated: bool, modules: str) -> list[Section]:
    """Test the best checkpoint of a run, or its last where none was kept as the best, and return what it shows.

    It is tested on the kind of data that it was trained on, generated or not, never on the other.
    """
    silence_noise()
    argv = ["test", "--run", str(run.path), *TEST_FLAGS]
    if modules:
        argv.append(f"--allow_modules={modules}")
    logging.disable(logging.INFO)  # of seeds and devices: the page has them
    try:
        return _test(argv, generated)
    finally:
        logging.disable(logging.NOTSET)


def _test(argv: list[str], generated: bool) -> list[Section]:
    experiment = build(Command(argv))
    model, data = experiment.model, experiment.data
    trainer = build_trainer(experiment, None)
    if isinstance(data, ExperimentData):
        data.generated, data.fallback = data.generated or generated, None
    predictions = Predictions()
    trainer.callbacks.append(predictions)  # pyright: ignore[reportAttributeAccessIssue]
    trainer.test(model, data, ckpt_path=experiment.command.config.ckpt_path, verbose=False, weights_only=True)

    if predictions.collector is None:
        raise UserError(f"{type(model).__name__}.test_step: it returns no logits, forecast or predicted; return them")
    return predictions.collector.sections()

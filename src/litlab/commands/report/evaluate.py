"""The checkpoint of a run, evaluated once more on its test split, for what no file of the run has."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from litlab.callbacks.evaluation import class_names
from litlab.cli.config import Command
from litlab.cli.fit import build
from litlab.cli.messages import describe_error
from litlab.cli.quiet import silence_noise
from litlab.cli.trainer import build_trainer
from litlab.commands.report.blocks import Evaluation
from litlab.commands.report.classification import Classification
from litlab.commands.report.forecasting import Forecasting
from litlab.commands.report.regression import Regression
from litlab.commands.report.samples import EvaluationContext, SampleRenderer
from litlab.data.module import ExperimentData
from litlab.errors import UserError
from litlab.runs.folder import RunFolder

# One process on whatever device there is; nothing is drawn, logged or compiled.
ALONE = (
    "--trainer.accelerator=auto", "--trainer.devices=1", "--trainer.num_nodes=1", "--trainer.strategy=auto",
    "--trainer.logger=false", "--trainer.callbacks=null", "--trainer.profiler=null", "--compile=null",
    "--activation_checkpointing=null", "--vram=null",
)  # fmt: skip
KINDS = Classification, Forecasting, Regression  # of predictions: the first that fits is taken


def evaluate(run: RunFolder, generated: bool, modules: str) -> Evaluation:
    """Test the best checkpoint of a run, or its last where none was kept as the best.

    Args:
        run: The run.
        generated: Whether its data was generated; it is tested on the same kind of data, never on the other.
        modules: Those beside the team's that its config may name, separated by commas.

    Raises:
        UserError: Its checkpoint, classes or data are missing, or there is nothing to test.
    """
    silence_noise()
    argv = ["test", "--run", str(run.path), *ALONE, *([f"--allow_modules={modules}"] if modules else [])]
    try:
        with _without_messages():
            return _test(argv, generated)
    except Exception as error:
        message = describe_error(error)
        if message is None:
            raise
        raise UserError(message) from error


@contextmanager
def _without_messages() -> Iterator[None]:
    """Leave out what a test says of seeds, devices and data: the page says it."""
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class Collector(Callback):
    """Looks at each batch of a test and its predictions. What it does not know it leaves alone.

    Args:
        data: The DataModule.
    """

    def __init__(self, data: Any) -> None:
        self.renderer = SampleRenderer(data)
        self.kind: Classification | Forecasting | Regression | None = None

    def on_test_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:  # fmt: skip
        """Choose by the first batch what to collect, and collect."""
        if dataloader_idx or not isinstance(outputs, dict):
            return
        if self.kind is None:
            fitting = next((kind for kind in KINDS if kind.fits(outputs, batch)), None)
            test = EvaluationContext(trainer, pl_module, self.renderer, trainer.num_test_batches[0])
            self.kind = None if fitting is None else fitting(test)
        if self.kind is not None:
            self.kind.add(outputs, batch, batch_idx)


def _test(argv: list[str], generated: bool) -> Evaluation:
    """Test, and return what was found.

    Args:
        argv: A command line of ``test``.
        generated: Whether the data of the run was generated.
    """
    experiment = build(Command(argv))
    data: Any = experiment.data
    model = experiment.model
    trainer = build_trainer(experiment, None)
    if isinstance(data, ExperimentData):
        data.generated, data.fallback = data.generated or generated, None
    collector = Collector(data)
    trainer.callbacks.append(collector)  # pyright: ignore[reportAttributeAccessIssue]
    trainer.test(model, data, ckpt_path=experiment.command.config.ckpt_path, verbose=False, weights_only=True)

    kind, parameters = collector.kind, list(model.parameters())
    evaluation = Evaluation(
        metrics={name: float(value) for name, value in trainer.callback_metrics.items()},
        task="" if kind is None else kind.task,
        parameters=(
            sum(weight.numel() for weight in parameters),
            sum(weight.numel() for weight in parameters if weight.requires_grad),
        ),
        sections=[] if kind is None else kind.sections(),
        samples=[] if kind is None else kind.samples(),
        sizes=dict(getattr(data, "sizes", {})),
    )
    if isinstance(kind, Classification) and hasattr(data, "labels"):
        evaluation.class_names = class_names(trainer, kind.classes)
        labels = {split: data.labels(split) for split in data.sizes}
        evaluation.counts = {
            split: found.cpu().bincount(minlength=kind.classes).tolist()
            for split, found in labels.items()
            if found is not None
        }
    return evaluation

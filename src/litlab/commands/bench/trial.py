"""One trial of a bench: the experiment's own ``fit`` for a few steps, without what it would write.

``bench`` runs it as ``python -m litlab.commands.bench.trial PACKAGE FILE STEPS FLAGS``.
"""

import os
import statistics
import sys
import time
from collections.abc import Generator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from litlab.callbacks import LRFinder, MemorySnapshot
from litlab.cli.config import Command
from litlab.cli.fit import Experiment, build_experiment, build_trainer
from litlab.cli.main import run_experiment
from litlab.cli.preflight import Preflight
from litlab.cli.trainer import check_trained
from litlab.runs.folder import write_json
from litlab.runs.provenance import describe_hardware
from litlab.util.device import has_fast_bfloat16
from litlab.util.steps import (
    Enough,
    LapTimer,
    count_samples,
    is_part_of_step,
    remove_end,
    steps_of_run,
)
from litlab.util.team import use_package

WARM_UP = 3  # steps before the first that is timed; CUDA graphs are recorded in the second
ROUNDS = 5
SECONDS = 2.0  # for all rounds, approximately
# What a fit writes, ends with or is started with, and more than one process; after the user's own
# flags.
NOTHING_ELSE = (
    "--trainer.logger=false", "--checkpoint=null", "--early_stopping=null",
    "--test_after_fit=false", "--trainer.enable_progress_bar=false",
    "--trainer.enable_model_summary=false", "--trainer.num_sanity_val_steps=0",
    "--trainer.limit_val_batches=0", "--trainer.max_time=null", "--trainer.profiler=null",
    "--trainer.fast_dev_run=false", "--trainer.devices=1", "--trainer.num_nodes=1",
    "--trainer.strategy=auto",
)  # fmt: skip


class TrialClock(LapTimer):
    """Times rounds of steps, 0 for as many as there is time for; epochs follow each other until the
    rounds are done.
    """

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.rates: list[float] = []  # samples per second of each round
        self.startup = 0.0
        self.run_samples = 0.0
        self._began = 0.0
        self._samples = 0

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        # The data is ready, and the callbacks after this one compile and so on
        self._began = time.perf_counter()

    def laps(self, trainer: Trainer, pl_module: LightningModule) -> Generator[int, float, None]:
        run_steps = steps_of_run(trainer)
        remove_end(trainer)

        # The first steps compile and allocate
        first: list[float] = []
        for _ in range(WARM_UP):
            first.append((yield 1))
        startup = time.perf_counter() - self._began
        self.steps = self.steps or max(1, int(SECONDS / ROUNDS / min(first)))

        step_seconds: list[float] = []
        samples = 0
        for _ in range(ROUNDS):
            self._samples = 0
            step_seconds.append((yield self.steps))
            self.rates.append(self._samples / (self.steps * step_seconds[-1]))
            samples += self._samples
        self.startup = max(0.0, startup - WARM_UP * statistics.median(step_seconds))
        self.run_samples = run_steps * samples / (ROUNDS * self.steps)
        raise Enough  # no epoch is completed, nothing is validated

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._samples += count_samples(batch) or 1  # a batch without tensors
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)


def run_trial(file: Path, steps: int, argv: list[str]) -> int:
    """Fit with a clock, which ends it, and write what it has measured as JSON."""
    experiment = build_experiment(Command([*argv, *NOTHING_ELSE]))
    trainer: Any = build_trainer(experiment, None)
    clock = TrialClock(steps)
    trainer.callbacks = [clock, *filter(_costs_time, trainer.callbacks)]  # set up first
    with suppress(Enough):
        trainer.fit(experiment.model, experiment.data)
    check_trained(trainer)

    trial = {"rates": clock.rates, "startup": clock.startup}
    facts = {**describe_experiment(experiment, trainer), "run_samples": clock.run_samples}
    write_json(file, {"trial": trial, "steps": clock.steps, "facts": facts})
    return 0


def describe_experiment(experiment: Experiment, trainer: Trainer) -> dict[str, Any]:
    """Return what `litlab.commands.bench.settings.Facts` has, but for the length of the run."""
    config = experiment.command.config
    settings = {**trainer.optimizers[0].defaults, **(config.data.get("init_args") or {})}
    current = {
        name: settings[name] for name in ("fused", "batch_size", "num_workers") if name in settings
    }
    compiled = config.get("compile")
    current |= {
        "precision": str(trainer.precision),
        "compile": compiled and compiled.init_args.mode,
        "channels_last": config.channels_last,
    }
    return {
        "experiment": config.experiment,
        "bfloat16": has_fast_bfloat16(trainer.strategy.root_device),
        "convolutions": any(parameter.ndim == 4 for parameter in experiment.model.parameters()),
        "current": current,
        "hardware": describe_hardware(trainer),
    }


def _costs_time(callback: Callback) -> bool:
    """Return whether a callback belongs in a trial: all but those that search, write, or need a
    logger.
    """
    if type(callback).__module__.startswith("lightning."):
        return is_part_of_step(callback)
    return not isinstance(callback, LRFinder | MemorySnapshot | Preflight)


if __name__ == "__main__":
    package, file, steps, *flags = sys.argv[1:]
    use_package(package)
    # Empty when a bench begins
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(file).parent / "compiled")
    sys.argv[1:] = ["fit", *flags]
    sys.exit(run_experiment(partial(run_trial, Path(file), int(steps))))

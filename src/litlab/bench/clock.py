"""The callback that times the steps of a trial, and ends it."""

import math
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from lightning.pytorch import LightningModule, Trainer

from litlab.bench.flops import StepFlops
from litlab.callbacks.memory import count_samples
from litlab.util.device import peak_gib
from litlab.util.steps import Enough, LapTimer, epoch_steps, steps_of_run

WARM_UP = 3  # steps before the first that is timed; CUDA graphs are recorded in the second
ROUNDS = 5
LEAST_ROUNDS = 2
PATIENCE = 3  # times the planned seconds that a slow trial may take before its steps get fewer


@dataclass(frozen=True)
class Plan:
    """Which steps are timed: the same ones, on the same batches, in all trials of an experiment.

    Args:
        rounds: Number of rounds.
        steps: Steps of a round.
    """

    rounds: int
    steps: int


def plan_for(seconds: float, step_seconds: float) -> Plan:
    """Return a plan that takes about so many seconds: more rounds come before longer ones.

    Args:
        seconds: For all steps.
        step_seconds: What a step takes, approximately.
    """
    steps = max(LEAST_ROUNDS, int(seconds / max(step_seconds, 1e-6)))
    rounds = min(ROUNDS, steps)
    return Plan(rounds, steps // rounds)


class TrialClock(LapTimer):
    """Time a fit's steps in rounds and report what was measured.

    Epochs follow each other until the rounds are done, whatever their number in the config.

    Args:
        seconds: For the timed steps, approximately.
        plan: Which steps to time; None: as many as there is time for.
            Then the operations of some more steps are counted.
        report: Called with what was found.
    """

    reads_gradients = False  # for OptimizerInBackward: `on_after_backward` only ends the counting

    def __init__(self, seconds: float, plan: Plan | None, report: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self._began = 0.0
        self._seconds = seconds
        self._planned = plan
        self._report = report
        self._flops = StepFlops() if plan is None else None
        self._start_seconds = 0.0
        self._samples = 0
        self._counts = False  # whether operations are counted now

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Start the clock of the start-up: the data is ready, and the next callbacks compile and so on."""
        self._began = time.perf_counter()

    def laps(self, trainer: Trainer, pl_module: LightningModule) -> Generator[int, float, None]:
        """Yield the warm-up, the rounds, and the steps whose operations are counted."""
        per_epoch, total = epoch_steps(trainer), steps_of_run(trainer)
        trainer.fit_loop.max_epochs, trainer.fit_loop.epoch_loop.max_steps = -1, -1
        trainer.strategy.lr_scheduler_configs = []  # some can't go on after the end, or want a validation's metric
        first: list[float] = []
        for _ in range(WARM_UP):
            first.append((yield 1))
        plan = self._plan_for(min(first))
        rounds: list[float] = []  # seconds of a step
        self._samples = 0
        for _ in range(plan.rounds):
            rounds.append((yield plan.steps))
        usual = sorted(rounds)[len(rounds) // 2]
        measured = {
            "step_seconds": rounds,
            "samples_per_step": self._samples / (plan.steps * plan.rounds),
            "start_seconds": self._start_seconds,
            "first_steps_seconds": max(0.0, sum(first) - len(first) * usual),
            "memory_gib": peak_gib(trainer),
            "precision": str(trainer.precision),
            "epoch_steps": per_epoch,
            "epochs": total / per_epoch if math.isfinite(total) else math.inf,
        }
        self._report({"measured": measured, "plan": vars(plan)})
        if self._flops is not None:
            self._samples, self._counts = 0, True
            yield min(ROUNDS, plan.steps)
            per_sample = self._flops.total / self._samples if self._samples else 0.0
            found = {"flops_per_sample": per_sample, "not_counted": sorted(self._flops.not_counted)}
            self._report(found)
        raise Enough  # no epoch is completed, nothing is validated

    def _plan_for(self, step_seconds: float) -> Plan:
        """Return the plan that is given; a shorter one where it would take far too long, or there is none."""
        given = self._planned
        if given is None:
            return plan_for(self._seconds, step_seconds)
        if step_seconds * given.rounds * given.steps < PATIENCE * self._seconds:
            return given
        return Plan(LEAST_ROUNDS, max(1, int(self._seconds / step_seconds / LEAST_ROUNDS)))

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Note when the first batch was there."""
        if not self._start_seconds:
            self._start_seconds = time.perf_counter() - self._began
        super().on_train_batch_start(trainer, pl_module, batch, batch_idx)
        if self._flops is not None and self._counts:
            self._flops.start()

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the optimizer's operations out, where the model does not call it itself."""
        if self._flops is not None and pl_module.automatic_optimization:
            self._flops.stop()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the samples, and the optimizer steps."""
        if self._flops is not None:
            self._flops.stop()
        self._samples += count_samples(batch)
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

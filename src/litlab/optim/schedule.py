"""Learning-rate schedules that YAML describes and the run's length completes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR, PolynomialLR, ReduceLROnPlateau

from litlab.errors import UserError, building
from litlab.optim.combined import Chain, Sequence
from litlab.optim.recipe import build_scheduler, missing_length
from litlab.optim.warmup_decay import WarmupDecay
from litlab.util.metrics import choose_mode

KEY = "model.schedule.scheduler"


@dataclass
class Schedule:
    """When and how the learning rate changes.

    A scheduler's length is taken from the run when it is left out: ``T_max`` of ``CosineAnnealingLR``, ``total_steps``
    of ``OneCycleLR``, and any parameter of these names in a scheduler of your own. The peak of ``OneCycleLR``, its
    ``max_lr``, is the optimizer's learning rate when it is left out.

    Args:
        scheduler: Any class of torch.optim.lr_scheduler, or your own, without its optimizer.
        interval: Step the scheduler after every optimizer step or after every epoch.
        frequency: Step it only every so many optimizer steps or epochs. With ReduceLROnPlateau and ``interval: step``,
            every so many batches of an epoch.
        monitor: Logged metric that ReduceLROnPlateau watches, such as val/loss.
    """

    # A `Recipe`, written out for the command line.
    scheduler: Callable[[Optimizer], LRScheduler] | Callable[[Optimizer, int], LRScheduler]
    interval: Literal["step", "epoch"] = "epoch"
    frequency: int = 1
    monitor: str | None = None

    def configure(
        self, optimizer: Optimizer, steps: float, epochs: int | None, model: nn.Module | None = None
    ) -> dict[str, Any]:
        """Build the scheduler.

        Args:
            optimizer: The optimizer whose learning rate it drives.
            steps: Optimizer steps in the whole run, infinite if unknown.
            epochs: Epochs in the whole run, None if unknown.
            model: The model that logs what ReduceLROnPlateau monitors.

        Returns:
            What ``LightningModule.configure_optimizers`` returns as ``lr_scheduler``.

        Raises:
            UserError: If an argument is missing, wrong, or would have to come from a run without a known length; or if
                the schedule ends before the run does.
        """
        if self.frequency < 1:
            raise UserError(f"model.schedule.frequency: {self.frequency} is not valid; it must be at least 1")
        length = steps if self.interval == "step" else epochs
        missing = self.missing_length()
        if missing is not None:
            if length == 0:
                raise UserError("trainer: the run has no steps; check max_steps, max_epochs and limit_train_batches")
            if length is None or length <= 0 or length == float("inf"):
                raise UserError(
                    f"{KEY}: {missing} can't be taken from a run without an end; "
                    "set it, or trainer.max_epochs or trainer.max_steps"
                )
        total = None if missing is None else max(1, int(length or 0) // self.frequency)
        with building(KEY):
            scheduler = build_scheduler(self.scheduler, optimizer, total, KEY)
        if isinstance(scheduler, ReduceLROnPlateau):
            if self.monitor is None:
                raise UserError(
                    "model.schedule.monitor: it is not set; name the metric for ReduceLROnPlateau, such as val/loss"
                )
            choose_mode(f"{KEY}.mode", scheduler.mode, self.monitor, model)
        elif length is not None and 0 < length < float("inf"):
            _check_length(scheduler, int(length) // self.frequency)
        # Lightning counts the batches of an epoch; `ExperimentModule.lr_scheduler_step` counts optimizer steps.
        counted = self.interval == "step" and not isinstance(scheduler, ReduceLROnPlateau)
        frequency = 1 if counted else self.frequency
        configured = {"scheduler": scheduler, "interval": self.interval, "frequency": frequency}
        return configured if self.monitor is None else {**configured, "monitor": self.monitor}

    def missing_length(self) -> str | None:
        """Return the name of the scheduler's length if it is left out, to be taken from the run; None if not."""
        return missing_length(self.scheduler, KEY)


def _check_length(scheduler: Any, steps: int) -> None:
    """Refuse a schedule that ends before the run does: torch would refuse a step, or train on at a rate of 0."""
    ends = isinstance(scheduler, OneCycleLR | Sequence | Chain | PolynomialLR)
    if not ends and not (isinstance(scheduler, WarmupDecay) and scheduler.final == 0):
        return
    end = scheduler.total_iters if isinstance(scheduler, PolynomialLR) else scheduler.total_steps
    if steps > end:
        raise UserError(
            f"{KEY}: {type(scheduler).__name__} ends after {end} steps, and this run steps it {steps} times; set its "
            "length to null to take the run's"
        )

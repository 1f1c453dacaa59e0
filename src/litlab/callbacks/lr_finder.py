"""Find a learning rate before the training starts."""

import math
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from lightning.pytorch.utilities.parsing import lightning_getattr, lightning_hasattr, lightning_setattr
from lightning.pytorch.utilities.seed import isolate_rng
from torch.optim import Optimizer
from tqdm import tqdm

from litlab.callbacks.finder import Finder, searches, write_overlay
from litlab.callbacks.lr_curve import FEWEST, draw_lr_curve, suggestion
from litlab.callbacks.reporting import publish_figure, run_folder
from litlab.callbacks.side_run import check_copies, side_run
from litlab.errors import UserError
from litlab.optim.param_groups import set_rate
from litlab.types import PositiveFloat, bounded
from litlab.util.progress import progress_bar

NAMES = ("lr", "learning_rate")  # of the model's attribute, as Lightning looks for it
DIVERGED = 4.0  # times the best loss so far

if TYPE_CHECKING:
    Steps = int
else:
    Steps = bounded(int, f">= {FEWEST}")


class LRFinder(Finder):
    """Raise the learning rate from step to step, and train with the rate at which the loss fell fastest.

    The range test of Smith 2017 (arXiv:1506.01186). It trains a copy of the model before the first step of the run,
    which then goes on as if it had been given the rate by hand: same weights, order, random numbers and metrics. An
    optimizer with several rates keeps their proportions, and so do parameter groups. The schedule plays no part in the
    search and starts from the rate found.

    The curve goes to the loggers and to ``lr_finder.png`` in the run folder, the rate to ``lr_finder.yaml``, an overlay
    for ``fit``. A resumed run keeps the rate. The search takes as long as its steps, and the memory of a second copy of
    the weights.

    Lightning's ``LearningRateFinder`` (2.6.6) gives all groups one rate, validates in between, takes the slope over the
    rate instead of its logarithm, and trains the model itself: then a checkpoint restores its weights, but not the
    metrics of the epoch or what callbacks and the model have counted.

    Args:
        min_lr: Where the search starts.
        max_lr: Where it ends. It ends earlier where the loss diverges: above four times the best so far, or not finite.
        num_training_steps: Optimizer steps of the search. Short data is gone through several times.
        train: Whether the training follows. false: the fit ends with the search.

    Raises:
        UserError: If max_lr is not above min_lr; in a fit, if the model has no learning rate to set, or no rate lets
            the loss fall.
    """

    key, what = "lr_finder", "learning rate"

    def __init__(
        self,
        min_lr: PositiveFloat = 1e-6,
        max_lr: PositiveFloat = 10.0,
        num_training_steps: Steps = 100,
        train: bool = True,
    ) -> None:
        if min_lr >= max_lr:
            raise UserError(f"trainer.callbacks.LRFinder.max_lr: {max_lr} is not above min_lr ({min_lr}); raise it")
        self.min_lr = min_lr
        self.max_lr = max_lr
        self.num_training_steps = num_training_steps
        super().__init__(train)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Search, unless the run is resumed; set the rate, publish the curve."""
        if not searches(trainer):
            return
        check_copies(self, trainer, pl_module)
        name, label = _attribute(pl_module)
        self._before = before = _value(pl_module, name)
        _check_follows(trainer, pl_module, name)
        rates, losses = trainer.strategy.broadcast(self._search(trainer, pl_module, before))
        found = suggestion(rates, losses)
        folder = run_folder(trainer)
        if trainer.is_global_zero:
            publish_figure(trainer, folder, "lr_finder", draw_lr_curve(rates, losses, found, label), stage="fit")
        if found is None:
            raise UserError(_no_suggestion(rates, losses, label))
        self.found = found.rate
        _set(trainer, pl_module, name, found.rate)
        where = ""
        if folder is not None and trainer.is_global_zero:
            init_args: Any = getattr(pl_module, "lr_settings", {name: found.rate})
            says = (
                f"Learning rate found in {len(rates)} steps from {rates[0]:.3g} to {rates[-1]:.3g}: {found.why}. "
                f"It was {before:g}."
            )
            where = f" ({write_overlay(folder, 'lr_finder', says, {'model': {'init_args': init_args}})})"
        rank_zero_info(f"LRFinder: {label} is {found.rate:g} instead of {before:g}: {found.why}{where}")
        trainer.should_stop = trainer.should_stop or not self.train

    def _search(self, trainer: Trainer, pl_module: LightningModule, before: float) -> tuple[list[float], list[float]]:
        """Return the learning rates and the mean loss of each step."""
        steps = self.num_training_steps
        factor = (self.max_lr / self.min_lr) ** (1 / (steps - 1))
        wanted = [self.min_lr * factor**step for step in range(steps)]
        with isolate_rng(), progress_bar(total=steps, desc="searching a learning rate") as progress:
            rising = _Rising([rate / before for rate in wanted], trainer, progress)
            side_run(trainer, pl_module, rising)
        return wanted[: len(rising.losses)], rising.losses

    def value(self, trainer: Trainer, pl_module: LightningModule) -> float:
        """Return the model's learning rate."""
        return _value(pl_module, _attribute(pl_module)[0])

    def set_value(self, trainer: Trainer, pl_module: LightningModule, value: float) -> None:
        """Set it."""
        lightning_setattr(pl_module, _attribute(pl_module)[0], value)


class _Rising(Callback):
    """Gives each step its rate, and notes its loss.

    Args:
        factors: Of each step, on the rates that the optimizer has.
        run: The run's Trainer, whose processes stop together.
        progress: Is told of each step, on the first process.
    """

    def __init__(self, factors: list[float], run: Trainer, progress: tqdm) -> None:
        self.factors, self.run, self.progress = factors, run, progress
        self.losses: list[float] = []
        self._rates: list[float] = []
        self._parts: list[float] = []  # losses of the batches of the step
        self._best = math.inf
        self._mean = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put the schedule away."""
        self._rates = _group_rates(trainer.optimizers[0])
        trainer.strategy.lr_scheduler_configs = []

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Set the rates of the step."""
        for group, rate in zip(trainer.optimizers[0].param_groups, self._rates, strict=True):
            set_rate(group, rate * self.factors[len(self.losses)])

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note the loss; stop at the end, or where it diverges."""
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None:
            self._parts.append(float(loss))
        if trainer.global_step == len(self.losses):
            return  # gradients are being accumulated
        value = sum(self._parts) / len(self._parts) if self._parts else math.nan
        self._parts = []
        self.losses.append(value)
        if self.run.is_global_zero:
            self.progress.update(1)
        # A mean over the last ten steps or so: one bad batch is no divergence.
        count = len(self.losses)
        self._mean = 0.9 * self._mean + 0.1 * value
        mean = self._mean / (1 - 0.9**count)
        self._best = min(self._best, mean)
        diverged = not math.isfinite(value) or mean - self._best > (DIVERGED - 1) * abs(self._best)
        over = diverged or count == len(self.factors)
        trainer.should_stop = self.run.strategy.reduce_boolean_decision(over, all=False)


def _attribute(pl_module: LightningModule) -> tuple[str, str]:
    """Return the name of the model's learning rate, and what a config calls it."""
    name = next((name for name in NAMES if lightning_hasattr(pl_module, name)), "lr")
    label = "model.optimizer.lr" if hasattr(pl_module, "lr_settings") else f"model.{name}"
    if not lightning_hasattr(pl_module, name) or not lightning_getattr(pl_module, name):
        raise UserError(
            f"trainer.callbacks: LRFinder sets {label}, which {type(pl_module).__name__} does not have; choose another "
            "model or optimizer, or leave LRFinder out"
        )
    return name, label


def _group_rates(optimizer: Optimizer) -> list[float]:
    """Return the rate of each group, without its schedule's factor; OneCycleLR starts far below it."""
    return [float(group.get("max_lr", group.get("initial_lr", group["lr"]))) for group in optimizer.param_groups]


def _value(pl_module: LightningModule, name: str) -> float:
    value: Any = lightning_getattr(pl_module, name)
    return float(value)


def _set(trainer: Trainer, pl_module: LightningModule, name: str, rate: float) -> None:
    lightning_setattr(pl_module, name, rate)
    trainer.strategy.setup_optimizers(trainer)


def _check_follows(trainer: Trainer, pl_module: LightningModule, name: str) -> None:
    """Refuse an optimizer whose groups would not all follow the learning rate."""
    if len(trainer.optimizers) != 1:
        raise UserError(
            f"trainer.callbacks: LRFinder finds the rate of one optimizer, and {type(pl_module).__name__} has "
            f"{len(trainer.optimizers)}; leave LRFinder out"
        )
    before = _value(pl_module, name)
    rates = _group_rates(trainer.optimizers[0])
    _set(trainer, pl_module, name, 2 * before)
    doubled = _group_rates(trainer.optimizers[0])
    schedules = [type(config.scheduler).__name__ for config in trainer.lr_scheduler_configs]
    _set(trainer, pl_module, name, before)
    if any(abs(twice - 2 * once) > 1e-6 * once for once, twice in zip(rates, doubled, strict=True)):
        who = f"{schedules[0]} (model.schedule)" if schedules else "model.optimizer"
        raise UserError(
            f"trainer.callbacks: LRFinder sets the optimizer's lr, and {who} has rates that do not follow it; choose "
            "another one, or leave LRFinder out"
        )


def _no_suggestion(rates: list[float], losses: list[float], label: str) -> str:
    if len(rates) < FEWEST:
        return (
            f"trainer.callbacks: LRFinder found no {label}, as the loss is {losses[-1]:.3g} at {rates[-1]:.3g}, after "
            f"{len(rates)} steps; set a smaller min_lr"
        )
    return (
        f"trainer.callbacks: LRFinder found no {label} from {rates[0]:.3g} to {rates[-1]:.3g} that lets the loss fall; "
        "set min_lr and max_lr further apart, or more num_training_steps"
    )

"""Find a learning rate before the training.

Lightning's LearningRateFinder (2.6.6) trains the model itself, whose metrics, random numbers and
schedule it does not restore. It gives all parameter groups one rate and takes the slope of the loss
over the rate itself instead of its logarithm, so that noise at the lowest rates wins.
"""

import copy
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.utilities import rank_zero_info

from litlab.callbacks.reporting import publish_figure, run_folder
from litlab.errors import UserError
from litlab.optim.param_groups import find_peak, set_rate
from litlab.types import PositiveFloat, PositiveInt
from litlab.util.steps import is_part_of_step, remove_end

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEWEST = 20  # steps that say something of a rate
SAME = (
    "precision", "max_epochs", "max_steps", "limit_train_batches", "limit_val_batches",
    "accumulate_grad_batches", "gradient_clip_val", "gradient_clip_algorithm",
)  # fmt: skip


class LRFinder(Callback):
    """Raise the learning rate from step to step, and train with the rate at which the loss fell
    fastest.

    The range test of Smith 2017 (arXiv:1506.01186), on a copy of the model. Parameter groups, and
    the rates of an optimizer that has several, keep their proportions. The schedule plays no part
    in the search and starts from the rate found. The curve goes to the loggers and to
    ``lr_finder.png`` in the run folder. A resumed run keeps the rate, which is in the state of the
    optimizer. The command line searches before the fit; in Python, call `search`.

    Args:
        min_lr: Where the search starts.
        max_lr: Where it ends, if the loss stays finite until then.
        num_training_steps: Optimizer steps of the search, at least 20. If the data has fewer
            batches, it is repeated.

    Raises:
        UserError: In a fit, if the model has no ``lr``, the run has several processes or manual
            optimization, or no rate lets the loss fall.
    """

    files = ("lr_finder.png",)

    def __init__(
        self,
        min_lr: PositiveFloat = 1e-6,
        max_lr: PositiveFloat = 10.0,
        num_training_steps: PositiveInt = 100,
    ) -> None:
        self.min_lr = min_lr
        self.max_lr = max_lr
        self.num_training_steps = num_training_steps
        self.lr: float | None = None  # that was found
        self._figure: Figure | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Publish the curve, now that the loggers have begun."""
        if self._figure is not None:
            publish_figure(trainer, run_folder(trainer), "lr_finder", self._figure, stage="fit")
        elif trainer.ckpt_path is None:  # pyright: ignore[reportAttributeAccessIssue]
            raise UserError(
                "trainer.callbacks: LRFinder has not searched yet; call its search(trainer, model, "
                "data) before trainer.fit"
            )

    def search(self, trainer: Trainer, model: Any, data: Any) -> None:
        """Find the rate with a copy of the model, and give it to the model.

        Args:
            trainer: The trainer of the fit that follows.
            model: The model, with a property ``lr``.
            data: Its DataModule.
        """
        before = getattr(model, "lr", None)
        is_single = isinstance(trainer.strategy, SingleDeviceStrategy)
        if not (before and is_single and model.automatic_optimization):
            raise UserError(
                "trainer.callbacks: LRFinder needs a model with an lr, automatic optimization and "
                "one process; if you have several processes, search with --trainer.devices 1 "
                "--trainer.strategy auto, then set the rate that it found"
            )
        rates = np.geomspace(self.min_lr, self.max_lr, self.num_training_steps)
        sweep = Sweep(rates / before)
        callbacks: list[Any] = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
        chosen = [callback for callback in callbacks if is_part_of_step(callback)]
        # At once, so that the callbacks know the copy
        module, parts = copy.deepcopy((model, chosen))
        build_second_trainer(trainer, [*parts, sweep]).fit(module, datamodule=data)

        rates, losses = rates[: len(sweep.losses)], np.array(sweep.losses)
        self.lr = suggest_rate(rates, losses)
        if self.lr is None:
            raise UserError(
                "trainer.callbacks: LRFinder found no rate at which the loss falls in "
                f"{len(losses)} steps; set a lower min_lr, a higher max_lr, or more "
                "num_training_steps"
            )
        model.lr = self.lr
        rank_zero_info(f"LRFinder: lr is {self.lr} instead of {before}")
        self._figure = draw_lr_curve(rates, losses, self.lr)


class Sweep(Callback):
    """Give each step its rates, and note its loss.

    Args:
        factors: Of each step, on the rates that the optimizer has.
    """

    def __init__(self, factors: np.ndarray) -> None:
        self.factors = factors
        self.losses: list[float] = []  # up to the first one that is not finite

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Beyond the end of a short run
        remove_end(trainer)
        # Without the factor that a schedule begins with; that of OneCycleLR is in initial_lr, too.
        self._groups = trainer.optimizers[0].param_groups
        self._rates = list(map(find_peak, self._groups))

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        factor = float(self.factors[len(self.losses)])
        for group, rate in zip(self._groups, self._rates, strict=True):
            set_rate(group, rate * factor)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == len(self.losses):
            return  # gradients are being accumulated
        loss = float(outputs["loss"])
        if math.isfinite(loss):
            self.losses.append(loss)
        trainer.should_stop = not math.isfinite(loss) or len(self.losses) == len(self.factors)


def build_second_trainer(run: Trainer, callbacks: list[Callback]) -> Trainer:
    """Build a Trainer for steps that the run knows nothing of: it trains like the run's, in one
        process.

    Args:
        run: The run's Trainer. Only its settings are used.
        callbacks: Those of the second Trainer; it has none of the run's.
    """
    device = run.strategy.root_device
    settings: dict[str, Any] = {name: getattr(run, name) for name in SAME}
    return Trainer(
        **settings,
        accelerator=device.type,
        devices=[device.index or 0] if device.type == "cuda" else 1,
        plugins=[LightningEnvironment()],  # no look at SLURM's or torchrun's ranks
        callbacks=callbacks,
        num_sanity_val_steps=0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def smooth(losses: np.ndarray) -> np.ndarray:
    """Average losses over neighbouring steps, without a shift to either side, shape (step,).

    Losses after a divergence are cut off at twice the height of the fall, or they would hide it.
    """
    from scipy.ndimage import gaussian_filter1d

    start = float(np.median(losses[: max(3, len(losses) // 20)]))
    return gaussian_filter1d(losses.clip(max=3 * start - 2 * losses.min()), 0.05 * len(losses))


def suggest_rate(rates: np.ndarray, losses: np.ndarray) -> float | None:
    """Return the rate at which the smoothed loss falls fastest, per factor in the rate, before its
    minimum.

    Where the fall is lost in the noise, as with small steps towards a small gain, it is a tenth of
    the rate from which the loss rises (Bengio 2012, arXiv:1206.5533: the best rate is usually close
    to the largest that does not diverge).

    Args:
        rates: Learning rates in ascending order, at equal factors, shape (step,).
        losses: The loss at each.

    Returns:
        The rate, to three digits; None where there are too few steps, or there is neither a fall
        nor a rise.
    """
    if len(losses) < FEWEST:
        return None
    curve = smooth(losses)
    until_lowest = slice(curve.argmin() + 1)
    noise = 1.3 * float(np.median(np.abs(np.diff(losses)))) + 1e-12  # knows nothing of trends
    is_higher = curve > curve[0] + noise
    if np.ptp(curve[until_lowest]) > noise:
        slope = np.gradient(curve, np.log(rates))
        rate = rates[slope[until_lowest].argmin()]
    elif is_higher[-1]:
        rate = rates[~is_higher][-1] / 10
    else:
        return None
    return float(f"{rate:.3g}")


def draw_lr_curve(rates: np.ndarray, losses: np.ndarray, lr: float) -> "Figure":
    """Draw loss over learning rate, smoothed and of each step, and the suggestion."""
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    axes = figure.add_subplot(xscale="log", xlabel="learning rate", ylabel="training loss")
    curve = smooth(losses)
    axes.plot(rates, losses.clip(max=curve.max()), ".")
    axes.plot(rates, curve)
    axes.axvline(lr, linestyle="--")
    return figure

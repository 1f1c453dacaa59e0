"""Find a learning rate or batch size before the training, on copies of model and data that the run knows nothing of.

Lightning's finders (2.6.6) train the model itself, whose metrics, random numbers and schedule they do not restore.
LearningRateFinder gives all parameter groups one rate and takes the slope of the loss over the rate itself instead of
its logarithm, so that noise at the lowest rates wins; BatchSizeFinder looks for the largest size only.
"""

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import psutil
import yaml
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.utilities import rank_zero_info
from lightning.pytorch.utilities.memory import garbage_collection_cuda
from lightning.pytorch.utilities.parsing import lightning_getattr, lightning_hasattr, lightning_setattr
from lightning.pytorch.utilities.seed import isolate_rng

from litlab.callbacks.reporting import publish_figure, run_folder
from litlab.callbacks.second_trainer import train_copy
from litlab.errors import UserError
from litlab.optim.param_groups import set_rate
from litlab.types import PositiveFloat, PositiveInt
from litlab.util.device import is_out_of_memory
from litlab.util.steps import LapTimer
from litlab.util.team import typed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TIMED = 3  # optimizer steps with each batch size, after one that makes the optimizer's state
AS_FAST = 0.98  # of the highest speed


class Finder(Callback, ABC):
    """Find a setting, then train as if it had been given by hand; a resumed run keeps it.

    Args:
        train: Whether the training follows.

    Raises:
        UserError: In a fit, if there is no such setting, or the run has several processes or manual optimization.
    """

    name: str  # of the setting: an attribute of model or data, as Lightning's finders look for it
    owner: str  # section of the config that has it

    def __init__(self, train: bool) -> None:
        self.train = train
        self.found: Any = None

    @abstractmethod
    def search(self, trainer: Trainer, pl_module: LightningModule, before: Any) -> tuple[Any, str]:
        """Return what is to take the place of the setting before, and how it was found."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.ckpt_path is not None or trainer.fast_dev_run:  # pyright: ignore[reportAttributeAccessIssue]
            return
        title, name = type(self).__name__, self.name
        before: Any = lightning_hasattr(pl_module, name) and lightning_getattr(pl_module, name)
        is_single = isinstance(trainer.strategy, SingleDeviceStrategy)
        if not (before and is_single and pl_module.automatic_optimization):
            raise UserError(
                f"trainer.callbacks: {title} needs a {name} of model or data, automatic optimization and one process; "
                "with more, search with --trainer.devices 1 --trainer.strategy auto, then train with its overlay"
            )

        with isolate_rng():
            self.found, why = self.search(trainer, pl_module, before)
        lightning_setattr(pl_module, name, self.found)
        trainer.fit_loop._combined_loader = None  # it may have been made to count the steps
        trainer.strategy.setup_optimizers(trainer)  # with a schedule that counts them anew
        trainer.should_stop = trainer.should_stop or not self.train

        says = f"{title}: {name} is {self.found} instead of {before}: {why}"
        if folder := run_folder(trainer):
            file = folder / f"{name}.yaml"
            settings = getattr(pl_module, f"{name}_settings", {name: self.found})
            head = f"# {says}\n#   {typed('fit')} --config EXPERIMENT.yaml --config {file}\n"
            file.write_text(head + yaml.safe_dump({self.owner: {"init_args": settings}}, sort_keys=False))
            says += f" ({file})"
        rank_zero_info(says)

    def state_dict(self) -> dict[str, Any]:
        return {"found": self.found}

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        state = checkpoint["callbacks"].get(self.state_key)
        if trainer.state.fn == "fit" and state is not None:
            self.found = state["found"]
            lightning_setattr(pl_module, self.name, self.found)


class LRFinder(Finder):
    """Raise the learning rate from step to step, and train with the rate at which the loss fell fastest.

    The range test of Smith 2017 (arXiv:1506.01186), on a copy of the model. Parameter groups, and the rates of an
    optimizer that has several, keep their proportions. The schedule plays no part in the search and starts from the
    rate found. The curve goes to the loggers and to ``lr_finder.png`` in the run folder, the rate to ``lr.yaml``, an
    overlay for ``fit``.

    Args:
        min_lr: Where the search starts.
        max_lr: Where it ends, if the loss is finite until there.
        num_training_steps: Optimizer steps of the search, 20 at least. Short data is gone through several times.
        train: Whether the training follows. false: the fit ends with the search.

    Raises:
        UserError: If max_lr is not above min_lr; in a fit, if no rate lets the loss fall.
    """

    name, owner = "lr", "model"

    def __init__(
        self,
        min_lr: PositiveFloat = 1e-6,
        max_lr: PositiveFloat = 10.0,
        num_training_steps: PositiveInt = 100,
        train: bool = True,
    ) -> None:
        if min_lr >= max_lr:
            raise UserError(f"trainer.callbacks.LRFinder.max_lr: {max_lr} is not above min_lr ({min_lr}); raise it")
        self.min_lr = min_lr
        self.max_lr = max_lr
        self.num_training_steps = num_training_steps
        super().__init__(train)

    def search(self, trainer: Trainer, pl_module: LightningModule, before: Any) -> tuple[float, str]:
        rates = np.geomspace(self.min_lr, self.max_lr, self.num_training_steps)
        sweep = _Sweep(rates / before)
        train_copy(trainer, pl_module, sweep)
        rates, losses = rates[: len(sweep.losses)], np.array(sweep.losses)
        found = suggest_rate(rates, losses)
        publish_figure(trainer, run_folder(trainer), "lr_finder", draw_lr_curve(rates, losses, found), stage="fit")
        if found is None:
            raise UserError(
                f"trainer.callbacks: LRFinder found no rate from {self.min_lr:g} to {self.max_lr:g} that lets the loss "
                f"fall in {len(losses)} steps; set min_lr lower, max_lr higher, or more num_training_steps"
            )
        return found, f"by the curve of {len(losses)} steps in lr_finder.png"


class _Sweep(Callback):
    """Gives each step its rates, and notes its loss.

    Args:
        factors: Of each step, on the rates that the optimizer has.
    """

    def __init__(self, factors: np.ndarray) -> None:
        self.factors = factors
        self.losses: list[float] = []  # up to the first one that is not finite
        self._rates: list[float] = []
        self._parts: list[float] = []  # losses of the batches of a step

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for group in trainer.optimizers[0].param_groups:
            # Without the factor that a schedule begins with; that of OneCycleLR is in initial_lr, too.
            self._rates.append(float(group.get("max_lr", group.get("initial_lr", group["lr"]))))

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        for group, rate in zip(trainer.optimizers[0].param_groups, self._rates, strict=True):
            set_rate(group, rate * float(self.factors[len(self.losses)]))

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._parts.append(float(outputs["loss"]))
        if trainer.global_step == len(self.losses):
            return  # gradients are being accumulated
        loss = sum(self._parts) / len(self._parts)
        self._parts = []
        if math.isfinite(loss):
            self.losses.append(loss)
        trainer.should_stop = not math.isfinite(loss) or len(self.losses) == len(self.factors)


def smooth(losses: np.ndarray) -> np.ndarray:
    """Average losses over neighbouring steps, without a shift to either side, shape (step,).

    Losses after a divergence are cut off at twice the height of the fall, or they would hide it.
    """
    start = float(np.median(losses[: max(3, len(losses) // 20)]))
    losses = np.minimum(losses, start + 2 * max(start - losses.min(), abs(start) * 1e-3))
    steps = np.arange(len(losses))
    weights = np.exp(-0.5 * ((steps[:, None] - steps) / max(1.0, 0.05 * len(losses))) ** 2)
    return weights @ losses / weights.sum(axis=1)


def suggest_rate(rates: np.ndarray, losses: np.ndarray) -> float | None:
    """Return the rate at which the smoothed loss falls fastest, per factor in the rate, before its minimum.

    Where the fall is lost in the noise, as with small steps towards a small gain, it is a tenth of the rate from which
    the loss rises (Bengio 2012, arXiv:1206.5533: the best rate is usually close to the largest that does not diverge).

    Args:
        rates: Learning rates in ascending order, at equal factors, shape (step,).
        losses: The loss at each.

    Returns:
        The rate, to three digits; None where there are too few points, or there is neither a fall nor a rise.
    """
    if len(losses) < 20:
        return None
    curve = smooth(losses)
    noise = 1.3 * float(np.median(np.abs(np.diff(losses)))) + 1e-12  # knows nothing of trends
    lowest = int(curve.argmin())
    is_higher = curve > curve[: len(curve) // 10].mean() + noise
    if curve[: lowest + 1].max() - curve[lowest] > noise:
        slope = np.gradient(curve, np.log(rates))
        rate = rates[slope[: lowest + 1].argmin()]
    elif is_higher[-1]:
        rate = rates[~is_higher][-1] / 10
    else:
        return None
    return float(f"{rate:.3g}")


def draw_lr_curve(rates: np.ndarray, losses: np.ndarray, found: float | None) -> "Figure":
    """Draw loss over learning rate, smoothed and of each step, and the suggestion."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), dpi=120, layout="constrained")
    axes = figure.add_subplot(xscale="log", xlabel="learning rate", ylabel="training loss")
    if found is not None:
        axes.axvline(found, color="tab:red", linestyle="--", label=f"suggestion: {found:g}")
    if len(losses):
        curve = smooth(losses)
        axes.plot(rates, losses.clip(max=curve.max()), ".", color="0.7", label="loss of a step")
        axes.plot(rates, curve, label="smoothed")
        axes.legend()
    return figure


class BatchFinder(Finder):
    """Try batch sizes, and train with the fastest one, or the largest that fits into the memory.

    A copy of the model takes a few steps with each size: from an eighth of the configured one, doubled until the memory
    is used up, an epoch is too short to be timed, or `max_size` is reached. Without a GPU the search ends where twice
    the process's memory might not be free. Of sizes within 2 % of the highest number of samples per second, the
    smallest is the fastest: small batches learn more per sample. ``batch_size.yaml`` in the run folder is an overlay
    for ``fit``. The learning rate stays as it is, and the steps are those of the model without ``compile``.

    Args:
        take: The size to train with.
        max_size: The largest size to try.
        train: Whether the training follows. false: the fit ends with the search.

    Raises:
        UserError: In a fit, if not even the smallest size fits.
    """

    name, owner = "batch_size", "data"

    def __init__(
        self, take: Literal["fastest", "largest"] = "fastest", max_size: PositiveInt = 8192, train: bool = True
    ) -> None:
        self.take = take
        self.max_size = max_size
        super().__init__(train)

    def search(self, trainer: Trainer, pl_module: LightningModule, before: Any) -> tuple[int, str]:
        on_cpu = trainer.strategy.root_device.type == "cpu"
        process, speeds = psutil.Process(), {}
        size = min(max(2, before // 8), self.max_size)  # norms over the batch can't train with one sample
        while size <= self.max_size:
            if on_cpu and process.memory_info().rss > psutil.virtual_memory().available:
                break
            speed = measure_speed(trainer, pl_module, size)
            if speed is None:
                break
            speeds[size] = speed
            rank_zero_info(f"BatchFinder: {speed:,.0f} samples/s in batches of {size}")
            size *= 2
        if not speeds:
            raise UserError(
                f"data.batch_size: BatchFinder can't try batches of {size}, which take too much memory or are less "
                f"than {TIMED + 2} an epoch; choose a smaller model or more data, or leave BatchFinder out"
            )
        limit = AS_FAST * max(speeds.values())
        fastest = min(size for size, speed in speeds.items() if speed >= limit)
        found = fastest if self.take == "fastest" else max(speeds)
        return found, f"the {self.take}, {speeds[found]:,.0f} samples/s"


def measure_speed(trainer: Trainer, pl_module: LightningModule, size: int) -> float | None:
    """Return the samples per second of a few steps; None if they need too much memory or are more than an epoch."""
    timer = _FewSteps()
    try:
        second = train_copy(trainer, pl_module, timer, batch_size=size)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    finally:
        garbage_collection_cuda()
    if not timer.seconds or second.num_training_batches < TIMED + 2:  # the last one may be smaller
        return None
    return size * second.accumulate_grad_batches / timer.seconds


class _FewSteps(LapTimer):
    """Take one step to warm up, and a few by the clock."""

    seconds = 0.0  # of a step

    def laps(self, trainer: Trainer, pl_module: LightningModule) -> Any:
        yield 1
        self.seconds = yield TIMED
        trainer.should_stop = True

"""The gradient noise scale: which batch size a training could make use of."""

import math
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import nn

from litlab.callbacks.batches import describe
from litlab.callbacks.gradient_moments import (
    FEWEST,
    Moments,
    batch_rows,
    micro_batch_moments,
    part_of,
    per_sample_moments,
    untouched,
    why_micro_batches,
)
from litlab.callbacks.noise_scale_curve import Point, draw_noise_scale, estimates, in_words, next_point
from litlab.callbacks.reporting import publish_figure, run_folder
from litlab.errors import UserError, first_line
from litlab.parallel.groups import shards
from litlab.types import PositiveInt
from litlab.util.device import is_out_of_memory

NAME = "GradientNoiseScale"
HEADER = ("step", "batch", "noise_scale", "grad_sq", "trace")


class GradientNoiseScale(Callback):
    """Log the gradient noise scale, the batch size from which on larger batches save few steps.

    It is B_simple = tr(Sigma) / G^2 of McCandlish et al. 2018 (arXiv:1812.06162): the trace of the covariance of the
    samples' gradients over the squared norm of the true gradient. Both are estimated without bias from the gradients of
    the samples of one batch, and averaged over the last 10 measurements or so. By the paper's model, a training in
    batches of that many samples takes twice the fewest steps and twice the fewest samples.

    Logged every `every_n_steps` steps, before the step: ``noise_scale/simple`` in samples, and its two parts
    ``noise_scale/trace`` and ``noise_scale/grad_sq``. At the end of a fit: a line, ``noise_scale.png`` and
    ``noise_scale.csv`` in the run folder. Ranks average over their batches.

    A measurement computes the training loss of the batch once more, with the weights, precision and dropout of the
    training, which goes on as if there were none. Where a network can't be computed sample by sample (batch norms,
    recurrent layers, mixup, and what ``torch.func.vmap`` refuses), the gradients are those of up to 8 micro-batches,
    with the same expectation and more variance; a line says so. Where a batch holds samples that are alike, such as
    texts of about the same length, the noise scale is too low. The model needs ``batch_loss(batch)``.

    Args:
        every_n_steps: Optimizer steps from one measurement to the next; the first step is not measured.

    Raises:
        UserError: In a fit, if the model has no ``batch_loss``, its weights are sharded or norms wait for other
            ranks, or batches can't be taken apart into samples.
    """

    def __init__(self, every_n_steps: PositiveInt = 50) -> None:
        self.every_n_steps = every_n_steps
        self.points: list[Point] = []
        self._decided = False  # whether it is known if gradients of single samples can be had
        self._why: str | None = None  # they can't

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Forget an earlier fit; a checkpoint is loaded later."""
        if stage == "fit":
            self.points, self._decided, self._why = [], False, None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse what it can't work with."""
        if not hasattr(pl_module, "batch_loss"):
            raise UserError(
                f"trainer.callbacks: {NAME} needs model.batch_loss(batch), which returns the mean loss and logs "
                f"nothing, and {type(pl_module).__name__} does not have it; add it, or leave {NAME} out"
            )
        if shards(trainer.strategy):
            raise UserError(
                f"trainer.strategy: {type(trainer.strategy).__name__} shards the weights, and {NAME} in "
                f"trainer.callbacks needs whole gradients; use ddp or one device, or leave {NAME} out"
            )
        if any(isinstance(module, nn.SyncBatchNorm) for module in pl_module.modules()):
            raise UserError(
                f"trainer.sync_batchnorm: {NAME} in trainer.callbacks computes gradients in each process by itself; "
                f"set it to false, or leave {NAME} out"
            )

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Measure on the first batch of every so many steps; on the first of all, find out how."""
        step = trainer.global_step
        due = step > 0 and step % self.every_n_steps == 0 and batch_idx % trainer.accumulate_grad_batches == 0
        if not due and self._decided:
            return
        sizes = {len(tensor) if tensor.ndim else 0 for tensor in batch_rows(batch)}
        if len(sizes) != 1:
            raise UserError(
                f"trainer.callbacks: {NAME} takes batches apart into samples, and the tensors of this one differ in "
                f"their first dimension ({describe(batch)}); leave {NAME} out"
            )
        (size,) = sizes
        if not self._decided and size:
            self._decided = True
            if why := self._why or why_micro_batches(pl_module):
                self._use_micro_batches(why)
            else:
                self._per_sample(trainer, pl_module, part_of(batch, torch.arange(min(size, 2))))
        if due:
            self._note(trainer, self._moments(trainer, pl_module, batch, size), size)

    def _moments(self, trainer: Trainer, pl_module: LightningModule, batch: Any, size: int) -> Moments | None:
        """Return the moments of a batch; None if it is too small."""
        if self._why is None and size > 1 and (moments := self._per_sample(trainer, pl_module, batch)) is not None:
            return moments
        if self._why is None or size < 2 * FEWEST:
            return None
        with untouched(pl_module):
            return micro_batch_moments(pl_module, batch, *_precision(trainer))  # pyright: ignore[reportArgumentType]

    def _per_sample(self, trainer: Trainer, pl_module: LightningModule, batch: Any) -> Moments | None:
        """Return the moments over single samples; None, and note why, if the network refuses."""
        with untouched(pl_module):
            try:
                return per_sample_moments(pl_module, batch, *_precision(trainer))  # pyright: ignore[reportArgumentType]
            except (RuntimeError, UserError) as error:
                if isinstance(error, UserError) and not isinstance(error.__cause__, RuntimeError):
                    raise
                # What vmap refuses has no type or wording of its own. A mistake in the model is not hidden: it is in
                # the line, and fails again, in a micro-batch or in the training step.
                if is_out_of_memory(error):
                    raise
                self._use_micro_batches(f"torch.func.vmap refuses the network ({first_line(error)})")
        return None

    def _use_micro_batches(self, why: str) -> None:
        self._why = why
        rank_zero_info(f"{NAME}: measures gradients of micro-batches instead of single samples, because {why}")

    def _note(self, trainer: Trainer, moments: Moments | None, size: int) -> None:
        """Average the estimates over the ranks that have one, and log them."""
        found = (math.nan, math.nan) if moments is None else estimates(moments)
        mine = [*found, 1.0] if all(map(math.isfinite, found)) else [0.0, 0.0, 0.0]
        device = trainer.strategy.root_device
        kind = torch.float32 if device.type == "mps" else torch.float64
        sums: Any = trainer.strategy.reduce(torch.tensor([*mine, size], dtype=kind, device=device), reduce_op="sum")
        grad_sq, trace, ranks, samples = sums.tolist()
        if not ranks:
            return
        batch = int(samples) * trainer.accumulate_grad_batches
        self.points.append(next_point(self.points, trainer.global_step, batch, grad_sq / ranks, trace / ranks))
        point = self.points[-1]
        values = {"noise_scale/grad_sq": point.grad_sq, "noise_scale/trace": point.trace}
        if not math.isnan(point.noise_scale):
            values["noise_scale/simple"] = point.noise_scale
        for logger in trainer.loggers:
            logger.log_metrics(values, step=point.step)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say how it ended, and publish the points."""
        if not self.points:
            rank_zero_info(
                f"{NAME}: nothing was measured in {trainer.global_step} steps: it takes a batch every "
                f"{self.every_n_steps} steps, of 2 samples or more ({2 * FEWEST} for micro-batches) and with finite "
                f"gradients; lower trainer.callbacks.{NAME}.every_n_steps"
            )
            return
        rank_zero_info(f"gradient noise scale: {in_words(self.points[-1])}")
        folder = run_folder(trainer)
        if trainer.is_global_zero:
            publish_figure(trainer, folder, "noise_scale", draw_noise_scale(self.points), stage="fit")
            from pandas import DataFrame

            rows = [(one.step, one.batch, one.noise_scale, one.grad_sq, one.trace) for one in self.points]
            if folder is not None:
                DataFrame(rows, columns=HEADER).to_csv(folder / "noise_scale.csv", index=False, float_format="%.6g")

    def state_dict(self) -> dict[str, Any]:
        """Return the points, (point, 4), and why they are of micro-batches."""
        return {"points": torch.tensor(self.points, dtype=torch.float64), "why": self._why}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with the points of a checkpoint."""
        self._why = state_dict["why"]
        self.points = [Point(int(step), int(batch), *rest) for step, batch, *rest in state_dict["points"].tolist()]


def _precision(trainer: Trainer) -> tuple[Any, float]:
    """Return what the trainer's precision computes a loss in, and what it scales it by."""
    scaler = getattr(trainer.precision_plugin, "scaler", None)
    return trainer.precision_plugin.train_step_context, 1.0 if scaler is None else float(scaler.get_scale())

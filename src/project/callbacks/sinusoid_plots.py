"""Sinusoids of a test, predicted before and after a few gradient steps."""

from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from litlab.callbacks.reporting import publish_figure, run_folder
from litlab.errors import UserError
from litlab.types import PositiveInt
from project.models.maml import MAML

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS = {0: ("#999999", "before"), 1: ("#1f77b4", "after 1 step"), 10: ("#d62728", "after 10 steps")}


class SinusoidPlots(Callback):
    """Draw some sinusoids of the test with their support points, and what a `MAML` predicts after 0, 1 and 10 steps.

    The figure goes to the loggers and, as ``sinusoids.png``, to the run folder. The tasks are the first ones of the
    test.

    Args:
        tasks: Number of sinusoids, at most those of the first batch.

    Raises:
        UserError: For another model, or data that are not `Sinusoids`.
    """

    def __init__(self, tasks: PositiveInt = 3) -> None:
        self.tasks = tasks
        self._drawn: list[Tensor] = []

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep curves of the first tasks."""
        if batch_idx > 0:
            return
        if not isinstance(pl_module, MAML) or "amplitude" not in batch:
            raise UserError("SinusoidPlots: it draws MAML on Sinusoids; remove SinusoidPlots from trainer.callbacks")
        support_x, support_y = batch["support_x"][: self.tasks], batch["support_y"][: self.tasks]
        amplitude, phase = (batch[name][: self.tasks, None] for name in ("amplitude", "phase"))
        x = torch.linspace(-5, 5, 201, device=support_x.device).expand(len(support_x), -1)
        predicted = pl_module.predictions(support_x, support_y, x[..., None], list(STEPS))
        self._drawn = [x, amplitude * torch.sin(x - phase), predicted[..., 0].float(), support_x, support_y]

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draw, log and save."""
        folder = run_folder(trainer)  # on every rank
        drawn, self._drawn = self._drawn, []
        if trainer.is_global_zero:
            publish_figure(trainer, folder, "sinusoids", draw_sinusoids(*(part.cpu() for part in drawn)))


def draw_sinusoids(x: Tensor, y: Tensor, predicted: Tensor, support_x: Tensor, support_y: Tensor) -> "Figure":
    """Draw tasks side by side.

    Args:
        x: Where the curves are known, (task, point).
        y: The sinusoids there, (task, point).
        predicted: What is predicted after each of `STEPS`, (task, step, point).
        support_x: Shape (task, shots, 1).
        support_y: Shape (task, shots, 1).
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * len(x), 3.0), dpi=120, layout="constrained")
    grid = figure.subplots(1, len(x), squeeze=False)[0]
    for task, axes in enumerate(grid):
        axes.plot(x[task], y[task], color="black", linewidth=1.2, label="sinusoid")
        for (colour, label), curve in zip(STEPS.values(), predicted[task], strict=True):
            axes.plot(x[task], curve, color=colour, linewidth=1.2, linestyle="--", label=label)
        axes.plot(support_x[task, :, 0], support_y[task, :, 0], "^", color="#9467bd", label="support points")
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.3)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8, frameon=False)
    return figure

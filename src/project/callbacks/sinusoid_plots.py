"""Sinusoids of a test, predicted before and after a few gradient steps."""

from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from litlab.callbacks.reporting import publish_figure, run_folder
from litlab.errors import UserError
from litlab.types import PositiveInt
from project.callbacks._figures import BLUE, RED, add_legend, make_axes
from project.models.maml import MAML

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS = {0: ("#999999", "before"), 1: (BLUE, "after 1 step"), 10: (RED, "after 10 steps")}


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

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if not isinstance(pl_module, MAML) or "amplitude" not in batch:
            raise UserError("SinusoidPlots: it draws MAML on Sinusoids; remove SinusoidPlots from trainer.callbacks")
        if batch_idx > 0:
            return
        tasks = {name: values[: self.tasks] for name, values in batch.items()}
        support = tasks["support_x"], tasks["support_y"]
        x = torch.linspace(-5, 5, 201, device=support[0].device).expand(len(support[0]), -1)
        y = tasks["amplitude"][:, None] * torch.sin(x - tasks["phase"][:, None])
        predicted = pl_module.predictions(*support, x[..., None], list(STEPS))[..., 0].float()
        self._drawn = [x, y, predicted, *support]

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        folder = run_folder(trainer)  # on every rank
        if trainer.is_global_zero:
            publish_figure(trainer, folder, "sinusoids", draw_sinusoids(*(part.cpu() for part in self._drawn)))


def draw_sinusoids(x: Tensor, y: Tensor, predicted: Tensor, support_x: Tensor, support_y: Tensor) -> "Figure":
    """Draw tasks side by side.

    Args:
        x: Where the curves are known, (task, point).
        y: The sinusoids there, (task, point).
        predicted: What is predicted after each of `STEPS`, (task, step, point).
        support_x: Shape (task, shots, 1).
        support_y: Shape (task, shots, 1).
    """
    figure, grid = make_axes(1, len(x), 3.4 * len(x), 3.0)
    for task, axes in enumerate(grid[0]):
        axes.plot(x[task], y[task], color="black", linewidth=1.2, label="sinusoid")
        for (colour, label), curve in zip(STEPS.values(), predicted[task], strict=True):
            axes.plot(x[task], curve, color=colour, linewidth=1.2, linestyle="--", label=label)
        axes.plot(support_x[task, :, 0], support_y[task, :, 0], "^", color="#9467bd", label="support points")
    add_legend(figure, grid[0, 0])
    return figure

"""Meta-learning for regression: initial weights from which a few gradient steps learn a new
task.
"""

from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from litlab.errors import UserError, first_line
from litlab.metrics import StageMetrics, Sums
from litlab.tasks import ExperimentModule
from litlab.types import NonNegativeInt, PositiveFloat

TEST_STEPS = (0, 1, 5, 10)  # inner steps after which new tasks are measured
Params = dict[str, Tensor]


class MAML(ExperimentModule):
    """Model-agnostic meta-learning (Finn et al. 2017, arXiv:1703.03400) of any regression network.

    For each task of a batch, `inner_steps` steps of gradient descent on the mean squared error of
    its support points lead from the network's weights to the task's own. The training loss is the
    mean squared error of the query points with those, as a mean over the tasks, and its gradient
    goes through the inner steps back to the network's weights. All tasks are computed at once:
    `torch.func.grad` for the inner gradient, `torch.func.vmap` over the tasks.

    With 0 inner steps, this is joint training on all tasks, the paper's "pretrained" baseline.

    A batch is a dict of ``support_x``, ``support_y``, ``query_x`` and ``query_y``, each (task,
    point, feature), such as `Sinusoids` gives. Logged once per epoch, exact over all tasks and
    ranks: ``train/loss``; for val and test ``loss`` after `inner_steps`, and ``mse_0``, ``mse_1``,
    ``mse_5`` and ``mse_10``, the error of the query points after as many steps.

    Args:
        network: Returns (point, target) for inputs of shape (point, feature).
        inner_lr: Learning rate of the inner steps.
        inner_steps: Gradient steps on each task in training; 0 for joint training.
        first_order: Whether the inner gradients count as constants in the gradient of the training
            loss, which leaves out second derivatives (the paper's first-order approximation).
        **training: optimizer, schedule and param_groups, as of `ExperimentModule`.

    Raises:
        UserError: If the network can't be computed for many tasks at once, its output has
            another shape than the targets, or the data has no tasks.
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        inner_lr: PositiveFloat = 0.01,
        inner_steps: NonNegativeInt = 1,
        first_order: bool = False,
        **training: Any,
    ) -> None:
        super().__init__(**training)
        self.network = network
        self.inner_lr, self.inner_steps, self.first_order = inner_lr, inner_steps, first_order
        self.steps = sorted({*TEST_STEPS, inner_steps})
        self.set_metrics({"errors": TaskErrors(self.steps)})
        self.train_metrics = StageMetrics("train")

    def predictions(
        self, support_x: Tensor, support_y: Tensor, x: Tensor, steps: Sequence[int]
    ) -> Tensor:
        """Predict each task before and after inner steps on its support points.

        Args:
            support_x: Shape (task, shots, feature).
            support_y: Shape (task, shots, target).
            x: Where to predict, (task, point, feature).
            steps: Numbers of inner steps, in ascending order.

        Returns:
            Predictions after these numbers of steps, (task, len(steps), point, target).

        Raises:
            UserError: If the network can't be vmapped, or returns another shape.
        """

        def of_task(support_x: Tensor, support_y: Tensor, x: Tensor) -> Tensor:
            params: Params = dict(self.network.named_parameters())
            outputs = []
            for step in range(steps[-1] + 1):
                if step > 0:
                    params = self._inner_step(params, support_x, support_y)
                if step in steps:
                    outputs.append(self._output(params, x, support_y.shape[1:]))
            return torch.stack(outputs)

        tracked = torch.is_grad_enabled()
        # Lightning evaluates in inference mode, where nothing has a gradient; in no_grad,
        # torch.func.grad works.
        with torch.inference_mode(False), torch.set_grad_enabled(tracked):
            # Copies, as autograd takes no tensors that were made in inference mode
            parts = [part.to(self.dtype).clone() for part in (support_x, support_y, x)]
            try:
                # Each task has its own dropout
                return vmap(of_task, randomness="different")(*parts)
            except RuntimeError as error:
                if not any(
                    words in str(error)
                    for words in ("vmap", "Batching rule", "torch.func", "transform")
                ):
                    raise
                raise UserError(
                    "model.network: torch.func.vmap does not work with "
                    f"{type(self.network).__name__} ({first_line(error)[:150]}); use another "
                    "network"
                ) from error

    def training_outputs(self, batch: dict[str, Tensor]) -> tuple[Tensor, None, Tensor]:
        """Return the mean squared error of the query points of all tasks after the inner steps,
        shape ().
        """
        return self._errors(batch, [self.inner_steps]).mean(), None, batch["query_y"]

    def evaluation_outputs(self, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the error of each task after each number of steps, (task, steps), and the
        targets.
        """
        return self._errors(batch, self.steps), batch["query_y"]

    def evaluate(self, metrics: StageMetrics, outputs: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Add the errors of a batch to metrics."""
        loss = outputs[:, self.steps.index(self.inner_steps)].mean()
        metrics.add(loss, outputs, target)
        return {"loss": loss}

    def on_fit_start(self) -> None:
        """Refuse strategies that keep a part of the weights in each process: inner steps need all
        of them.
        """
        super().on_fit_start()
        if isinstance(self.trainer.strategy, FSDPStrategy | ModelParallelStrategy):
            raise UserError(
                "trainer.strategy: it shards the weights, which MAML replaces in inner "
                "steps; use ddp"
            )

    def expected_loss(self, batch: dict[str, Tensor]) -> float:
        """Return the loss of predicting 0 everywhere."""
        return batch["query_y"].float().square().mean().item()

    def _errors(self, batch: dict[str, Tensor], steps: Sequence[int]) -> Tensor:
        """Return the mean squared error of each task's query points after these numbers of steps,
        (task, steps).
        """
        if not isinstance(batch, dict) or "support_x" not in batch:
            raise UserError(
                "data: its batches have no support_x, support_y, query_x and query_y; use data "
                "made of tasks"
            )
        predicted = self.predictions(
            batch["support_x"], batch["support_y"], batch["query_x"], steps
        )
        # An error in bfloat16 has two digits
        predicted = predicted.to(torch.promote_types(predicted.dtype, torch.float32))
        return (predicted - batch["query_y"][:, None]).square().mean(dim=(2, 3))

    def _inner_step(self, params: Params, x: Tensor, y: Tensor) -> Params:
        """Return the parameters after a gradient step on the points x, (point, feature), and y,
        (point, target).
        """

        def loss(params: Params) -> Tensor:
            return (self._output(params, x, y.shape[1:]) - y).square().mean()

        at = (
            {name: value.detach() for name, value in params.items()} if self.first_order else params
        )
        gradient = grad(loss)(at)
        return {name: value - self.inner_lr * gradient[name] for name, value in params.items()}

    def _output(self, params: Params, x: Tensor, target: torch.Size) -> Tensor:
        """Return the network's output with these parameters for one task: (point, *target) from
        (point, feature).
        """
        output = functional_call(self.network, params, (x,))
        if output.shape != (len(x), *target):
            raise UserError(
                f"model.network: it returns {(*output.shape,)} for {len(x)} points, not "
                f"{(len(x), *target)}; give it one output for each target"
            )
        return output


class TaskErrors(Sums):
    """Mean errors over tasks, ``mse_0`` and so on, after numbers of inner steps.

    Args:
        steps: The numbers.
    """

    def __init__(self, steps: Sequence[int]) -> None:
        super().__init__(2, len(steps))
        self.steps = steps

    def update(self, errors: Tensor, target: Tensor) -> None:
        """Add tasks: the error of each after each number of steps, (task, steps)."""
        super().update(errors, torch.ones_like(errors))

    def compute(self) -> dict[str, Tensor]:
        """Return the means of the steps that are reported, each of shape ()."""
        totals, counts = self.sums
        means = zip(self.steps, (totals / counts).float(), strict=True)
        return {f"mse_{steps}": mean for steps, mean in means if steps in TEST_STEPS}

"""Meta-learning for regression: initial weights from which a few gradient steps learn a new task."""

from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from litlab.errors import UserError, first_line
from litlab.metrics import MeanLoss
from litlab.tasks import ExperimentModule
from litlab.types import NonNegativeInt, PositiveFloat

TEST_STEPS = (0, 1, 5, 10)  # inner steps after which new tasks are measured
Params = dict[str, Tensor]


class MAML(ExperimentModule):
    """Model-agnostic meta-learning (Finn et al. 2017, arXiv:1703.03400) of any regression network.

    For each task of a batch, `inner_steps` steps of gradient descent on the mean squared error of its support points
    lead from the network's weights to the task's own. The training loss is the mean squared error of the query points
    with those, as a mean over the tasks, and its gradient goes through the inner steps back to the network's weights.
    All tasks are computed at once: `torch.func.grad` for the inner gradient, `torch.func.vmap` over the tasks.

    With 0 inner steps it is joint training on all tasks, the paper's "pretrained" baseline.

    A batch is a dict of ``support_x``, ``support_y``, ``query_x`` and ``query_y``, each (task, point, feature), such as
    `Sinusoids` gives. Logged once per epoch, exact over all tasks and ranks: ``train/loss``; for val and test ``loss``
    after `inner_steps`, and ``mse_0``, ``mse_1``, ``mse_5`` and ``mse_10``, the error of the query points after as many
    steps.

    Args:
        network: Returns (point, target) for inputs of shape (point, feature).
        inner_lr: Learning rate of the inner steps.
        inner_steps: Gradient steps on each task in training; 0 for joint training.
        first_order: Whether the inner gradients count as constants in the gradient of the training loss, which leaves
            out second derivatives (the paper's first-order approximation).
        **training: optimizer, schedule and param_groups, as of `ExperimentModule`.

    Raises:
        UserError: If the network can't be computed for many tasks at once, its output has
            another shape than the targets, or the data has no tasks.
    """

    losses: Any

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
        self.train_loss = MeanLoss()
        # Of an evaluation, by the number of steps.
        self.losses = nn.ModuleDict({str(steps): MeanLoss() for steps in (*TEST_STEPS, inner_steps)})

    def forward(self, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the network's output without an inner step, (point, target), for inputs of shape (point, feature)."""
        return self.network(x)

    def predictions(self, support_x: Tensor, support_y: Tensor, x: Tensor, steps: Sequence[int]) -> Tensor:
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
        # Lightning evaluates in inference mode, where nothing has a gradient; in no_grad, torch.func.grad works.
        with torch.inference_mode(False), torch.set_grad_enabled(tracked):
            parts = [_normal(part.to(self.dtype)) for part in (support_x, support_y, x)]
            try:
                return vmap(of_task, randomness="different")(*parts)  # each task has its own dropout
            except RuntimeError as error:
                if not any(words in str(error) for words in ("vmap", "Batching rule", "torch.func", "transform")):
                    raise
                raise UserError(
                    f"model.network: torch.func.vmap can't take {type(self.network).__name__} "
                    f"({first_line(error)[:150]}); use another network"
                ) from error

    def batch_loss(self, batch: dict[str, Tensor]) -> Tensor:
        """Return the mean squared error of the query points of all tasks after the inner steps, shape ()."""
        return self._errors(batch, [self.inner_steps]).mean()

    def training_step(self, batch: dict[str, Tensor], batch_idx: int) -> Tensor:
        """Return the training loss, and add it to that of the epoch."""
        loss = self.batch_loss(batch)
        self.train_loss.add(loss, len(batch["query_y"]))
        self.log_recent_loss(self.train_loss)
        return loss

    def validation_step(self, batch: dict[str, Tensor], batch_idx: int) -> None:
        """Add the errors of the batch to those of the epoch."""
        steps = sorted(map(int, self.losses))
        for number, mean in zip(steps, self._errors(batch, steps).mean(dim=0), strict=True):
            self.losses[str(number)].add(mean, len(batch["query_y"]))

    test_step = validation_step

    def on_fit_start(self) -> None:
        """Refuse strategies that keep a part of the weights in each process: inner steps need all of them."""
        super().on_fit_start()
        if isinstance(self.trainer.strategy, FSDPStrategy | ModelParallelStrategy):
            raise UserError("trainer.strategy: it shards the weights, which MAML replaces in inner steps; use ddp")

    def on_train_epoch_start(self) -> None:
        """Start the mean of the epoch."""
        self.train_loss.reset()

    def on_train_epoch_end(self) -> None:
        """Log the mean of the epoch."""
        self.train_loss.flush()
        self.log("train/loss", self.train_loss.compute(), sync_dist=True)

    def on_validation_epoch_start(self) -> None:
        """Start the means."""
        for loss in self.losses.values():
            loss.reset()

    on_test_epoch_start = on_validation_epoch_start

    def on_validation_epoch_end(self) -> None:
        """Log the means over the validation tasks."""
        self._log_errors("val")

    def on_test_epoch_end(self) -> None:
        """Log the means over the test tasks."""
        self._log_errors("test")

    def expected_loss(self, batch: dict[str, Tensor]) -> float:
        """Return the loss of predicting 0 everywhere."""
        return batch["query_y"].float().square().mean().item()

    def _errors(self, batch: dict[str, Tensor], steps: Sequence[int]) -> Tensor:
        """Return the mean squared error of each task's query points after these numbers of steps, (task, steps)."""
        if not isinstance(batch, dict) or "support_x" not in batch:
            raise UserError("data: its batches have no support_x, support_y, query_x and query_y; use data of tasks")
        predicted = self.predictions(batch["support_x"], batch["support_y"], batch["query_x"], steps)
        least = torch.promote_types(predicted.dtype, torch.float32)  # an error in bfloat16 has two digits
        return (predicted.to(least) - batch["query_y"].to(least)[:, None]).square().mean(dim=(2, 3))

    def _inner_step(self, params: Params, x: Tensor, y: Tensor) -> Params:
        """Return the parameters after a gradient step on the points x, (point, feature), and y, (point, target)."""

        def loss(params: Params) -> Tensor:
            return (self._output(params, x, y.shape[1:]) - y).square().mean()

        at = {name: value.detach() for name, value in params.items()} if self.first_order else params
        gradient = grad(loss)(at)
        return {name: value - self.inner_lr * gradient[name] for name, value in params.items()}

    def _output(self, params: Params, x: Tensor, target: torch.Size) -> Tensor:
        """Return the network's output with these parameters for one task: (point, *target) from (point, feature)."""
        output = functional_call(self.network, params, (x,))
        if output.shape != (len(x), *target):
            raise UserError(
                f"model.network: it returns {(*output.shape,)} for {len(x)} points, not {(len(x), *target)}; give it "
                "an output for each target"
            )
        return output

    def _log_errors(self, stage: str) -> None:
        for loss in self.losses.values():
            loss.flush()
        means = {steps: loss.compute() for steps, loss in self.losses.items()}
        values = {f"{stage}/mse_{steps}": means[str(steps)] for steps in TEST_STEPS}
        self.log_dict({f"{stage}/loss": means[str(self.inner_steps)], **values}, sync_dist=True)


def _normal(tensor: Tensor) -> Tensor:
    """Return the tensor, or a copy of one made in inference mode, which autograd does not take."""
    return tensor.clone() if tensor.is_inference() else tensor

"""The gradient noise scale: which batch size a training could make use of."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from lightning.pytorch.utilities.seed import isolate_rng
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torchmetrics import Metric

from litlab.callbacks.samples import refuse
from litlab.metrics import load_metric_states, metric_states
from litlab.types import PositiveInt
from litlab.util.ranks import divides_model

MICRO_BATCHES = 8
DECAY = 0.9  # of the averages, from one measurement to the next


class Point(NamedTuple):
    """The averages after a measurement.

    Attributes:
        step: Optimizer steps taken before it.
        batch: Samples of an optimizer step: of all ranks and accumulated batches.
        grad_sq: Squared norm of the true gradient.
        trace: Trace of the covariance of the samples' gradients.
    """

    step: int = 0
    batch: int = 0
    grad_sq: float = 0.0
    trace: float = 0.0

    @property
    def noise_scale(self) -> float:
        """Their ratio, in samples; NaN where the gradient is lost in the noise."""
        return self.trace / self.grad_sq if self.grad_sq > 0 else math.nan


class GradientNoiseScale(Callback):
    """Log the gradient noise scale, the batch size from which on larger batches save few steps.

    It is B_simple = tr(Sigma) / G^2 of McCandlish et al. 2018 (arXiv:1812.06162): the trace of the
    covariance of the samples' gradients over the squared norm of the true gradient. Both are
    estimated without bias from the gradients of 8 micro-batches of one batch, and averaged over the
    last 10 measurements or so. By the paper's model, a training in batches of that many samples
    takes twice the fewest steps and twice the fewest samples.

    Logged every `every_n_steps` steps, before the step: ``noise_scale/simple`` in samples, and its
    two parts ``noise_scale/trace`` and ``noise_scale/grad_sq``. A fit ends with a line. A
    measurement computes the training loss of the batch once more, by the model's ``batch_loss`` or
    else by its ``training_step``; the training goes on as if there were none: buffers, metrics,
    random numbers and ``self.log`` do not notice it. What else a ``training_step`` changes is
    changed once more for each micro-batch. Where a batch holds samples that are alike, such as
    texts of about the same length, the noise scale is too low.

    Args:
        every_n_steps: Optimizer steps from one measurement to the next; the first step is not
            measured.

    Raises:
        UserError: In a fit, if the model optimizes manually, its weights are sharded, or tensors of
            a batch differ in the number of samples.
    """

    def __init__(self, every_n_steps: PositiveInt = 50) -> None:
        self.every_n_steps = every_n_steps
        self.points: list[Point] = []

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not pl_module.automatic_optimization:
            raise refuse(self, "the model optimizes manually; use automatic optimization")
        if divides_model(trainer.strategy):
            raise refuse(
                self,
                f"trainer.strategy {type(trainer.strategy).__name__} shards the weights, and it "
                "takes whole gradients; use ddp or one device",
            )

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        step = trainer.global_step
        if step == 0 or step % self.every_n_steps or batch_idx % trainer.accumulate_grad_batches:
            return
        sizes = {part.shape[:1] for part in tree_leaves(batch) if isinstance(part, Tensor)}
        if len(sizes) != 1 or not (size := sizes.pop()):
            raise refuse(
                self,
                "it divides a training batch into parts, for which all of its tensors must be "
                "(batch, ...); return such batches",
            )
        samples = size[0]
        # Compiled code would be compiled again for micro-batches
        with (
            isolate_rng(),
            torch.compiler.set_stance("force_eager"),
            trainer.precision_plugin.train_step_context(),
            keep_state(pl_module),
        ):
            estimates = estimate_noise(pl_module, batch, samples, batch_idx)

        # Average over ranks, and over measurements without a bias to the first ones.
        grad_sq, trace = trainer.strategy.reduce(estimates, reduce_op="mean").tolist()
        if not math.isfinite(grad_sq + trace):
            return
        last = self.points[-1] if self.points else Point()
        weight = (1 - DECAY) / (1 - DECAY ** (len(self.points) + 1))
        grad_sq = last.grad_sq + weight * (grad_sq - last.grad_sq)
        trace = last.trace + weight * (trace - last.trace)
        batch_size = samples * trainer.world_size * trainer.accumulate_grad_batches
        point = Point(step, batch_size, grad_sq, trace)
        self.points.append(point)
        values = {"simple": point.noise_scale, "grad_sq": grad_sq, "trace": trace}
        values = {f"noise_scale/{name}": value for name, value in values.items()}
        for logger in trainer.loggers:
            logger.log_metrics(values, step=step)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not self.points:
            rank_zero_info(
                "GradientNoiseScale: nothing was measured; it takes more than "
                f"{self.every_n_steps} steps, finite gradients and batches of 4 samples or more"
            )
            return
        # Equation 2.11 of the paper: it takes S (1 + N / B) steps to a loss, where S is the fewest.
        point = self.points[-1]
        saved = point.noise_scale / (point.noise_scale + point.batch) / 2
        rank_zero_info(
            f"gradient noise scale: {point.noise_scale:,.0f} samples at the end, with batches "
            f"of {point.batch:,}; twice the batch takes about {saved:.0%} fewer steps and "
            f"{1 - 2 * saved:.0%} more samples to the same loss, by the model of McCandlish et "
            "al. (2018)"
        )

    def state_dict(self) -> dict[str, Any]:
        return {"points": [tuple(point) for point in self.points]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.points = [Point(*values) for values in state_dict["points"]]


@contextmanager
def keep_state(model: LightningModule) -> Iterator[None]:
    """Leave buffers, metrics and what is logged as they are, whatever training steps do."""
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    states = metric_states(model)
    model.log = lambda *_, **__: None  # which `log_dict` calls
    try:
        yield
    finally:
        del model.log
    for buffer, before in buffers:
        buffer.copy_(before)
    for part in model.modules():
        if isinstance(part, Metric):
            part.reset()
    load_metric_states(model, states, model.device)


def compute_loss(model: Any, batch: Any, batch_idx: int) -> Tensor:
    """Return the mean training loss of a batch."""
    if hasattr(model, "batch_loss"):
        return model.batch_loss(batch)
    takes_index = is_param_in_hook_signature(model.training_step, "batch_idx", min_args=2)
    outputs = model.training_step(batch, *[batch_idx][:takes_index])
    return outputs["loss"] if isinstance(outputs, dict) else outputs


def estimate_noise(model: Any, batch: Any, samples: int, batch_idx: int = 0) -> Tensor:
    """Estimate the squared norm of the true gradient, and the trace of the covariance of the
    samples' gradients.

    Without bias: appendix A.1 of McCandlish et al. 2018, with a micro-batch as the small batch and
    all of them as the large one.

    Args:
        model: As of `compute_loss`; its trainable parameters count.
        batch: Tensors of shape (batch, ...), however nested.
        samples: How many it holds.
        batch_idx: Its number.

    Returns:
        Both, shape (2,); the first may be negative. NaN for fewer than 4 samples.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    device = parameters[0].device
    if samples < 4:
        return torch.full((2,), math.nan, device=device)

    # Micro-batches are drawn at random: neighbours may be alike. `.grad` is not filled, and DDP
    # shares nothing.
    size = max(samples // MICRO_BATCHES, 2)  # of a single sample batch norms have no variance
    count = samples // size
    # Of gradients, of their norms
    mean, mean_square = torch.zeros((), device=device), torch.zeros((), device=device)
    for rows in torch.randperm(samples, device=device).split(size)[:count]:
        part = apply_to_collection(batch, Tensor, torch.index_select, dim=0, index=rows)
        loss = compute_loss(model, part, batch_idx)
        parts = torch.autograd.grad(loss, parameters, materialize_grads=True)
        gradient = torch.cat([part.flatten().float() for part in parts])
        mean = mean + gradient / count
        mean_square = mean_square + gradient.square().sum() / count
    square_of_mean = mean.square().sum()
    grad_sq = (count * square_of_mean - mean_square) / (count - 1)
    trace = (mean_square - square_of_mean) * size * count / (count - 1)
    return torch.stack([grad_sq, trace])

"""The gradient noise scale: which batch size a training could make use of."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from lightning.pytorch.utilities.seed import isolate_rng
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor
from torchmetrics import Metric

from litlab.callbacks.samples import refuse
from litlab.metrics import load_metric_states, metric_states
from litlab.types import PositiveInt
from litlab.util.ranks import divides_model
from litlab.util.steps import tensors

MICRO_BATCHES = 8
DECAY = 0.9  # of the averages, from one measurement to the next


class GradientNoiseScale(Callback):
    """Log the gradient noise scale, the batch size above which larger batches save few steps.

    It is B_simple = tr(Sigma) / G^2 of McCandlish et al. 2018 (arXiv:1812.06162): the trace of the
    covariance of the samples' gradients over the squared norm of the true gradient. Both are
    estimated without bias from the gradients of 8 micro-batches of one batch, and averaged over the
    last 10 measurements or so. By the paper's model, training in batches of that many samples takes
    twice the smallest possible number of steps, and twice the smallest possible number of samples.

    Logged every `every_n_steps` steps, before the step: ``noise_scale/simple`` in samples, and its
    two parts ``noise_scale/trace`` and ``noise_scale/grad_sq``. A fit ends with a line. A
    measurement computes the training loss of the batch once more, with the model's ``batch_loss``
    or else its ``training_step``. Training continues as if there were no measurement: buffers,
    metrics, random numbers and ``self.log`` are not affected. Anything else that a
    ``training_step`` changes is changed once more for each micro-batch. If a batch has similar
    samples, such as texts of about the same length, the noise scale is too low.

    Args:
        every_n_steps: Optimizer steps between measurements; the first step is not measured.

    Raises:
        UserError: In a fit, if the model optimizes manually, its weights are sharded, or tensors of
            a batch differ in the number of samples.
    """

    def __init__(self, every_n_steps: PositiveInt = 50) -> None:
        self.every_n_steps = every_n_steps
        # Of each measurement: steps before it, samples of a step (of all ranks and accumulated
        # batches), and the averages after it: squared norm of the gradient, and trace
        self.points: list[list[float]] = []

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not pl_module.automatic_optimization or divides_model(trainer.strategy):
            raise refuse(
                self,
                "it needs whole gradients and automatic optimization; set trainer.strategy to "
                "auto or ddp, and self.automatic_optimization to True",
            )

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        step = trainer.global_step
        if step == 0 or step % self.every_n_steps or batch_idx % trainer.accumulate_grad_batches:
            return
        sizes = {part.shape[:1] for part in tensors(batch)}
        if len(sizes) != 1 or not (size := sizes.pop()):
            raise refuse(
                self,
                "it divides a training batch into parts, so all of its tensors must be (batch, "
                "...); return such batches",
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
        _, _, *averages = self.points[-1] if self.points else [0.0] * 4
        weight = (1 - DECAY) / (1 - DECAY ** (len(self.points) + 1))
        grad_sq = averages[0] + weight * (grad_sq - averages[0])
        trace = averages[1] + weight * (trace - averages[1])
        total = samples * trainer.world_size * trainer.accumulate_grad_batches
        self.points.append([step, total, grad_sq, trace])
        values = {
            "noise_scale/simple": divide(trace, grad_sq),
            "noise_scale/grad_sq": grad_sq,
            "noise_scale/trace": trace,
        }
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
        _, total, grad_sq, trace = self.points[-1]
        scale = divide(trace, grad_sq)
        saved = scale / (scale + total) / 2
        rank_zero_info(
            f"gradient noise scale: {scale:,.0f} samples at the end, with batches of {total:,}; "
            f"twice the batch takes about {saved:.0%} fewer steps and {1 - 2 * saved:.0%} more "
            "samples to the same loss, by the model of McCandlish et al. (2018)"
        )

    def state_dict(self) -> dict[str, Any]:
        return {"points": self.points}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.points = state_dict["points"]


def divide(trace: float, grad_sq: float) -> float:
    """Return the noise scale in samples; NaN where the gradient is lost in the noise."""
    return trace / grad_sq if grad_sq > 0 else math.nan


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
    if samples < 4:
        return parameters[0].new_full((2,), math.nan)

    # Micro-batches are drawn at random: neighbours may be alike. `.grad` is not filled, and DDP
    # shares nothing.
    size = max(samples // MICRO_BATCHES, 2)  # of a single sample batch norms have no variance
    count = samples // size
    mean: Any = 0.0  # of gradients
    mean_square: Any = 0.0  # of their norms
    for rows in torch.randperm(samples, device=parameters[0].device).split(size)[:count]:
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

"""Gradients of the parts of a batch: their mean squared norm, and the squared norm of their mean."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import torch
from lightning.pytorch.utilities.seed import isolate_rng
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from litlab.nn.fake_quantize import Rounding

LARGEST = 2**25  # numbers in the gradients of the samples of a chunk, if there are several: 128 MiB in float32
MICRO_BATCHES = 8
FEWEST = 2  # samples of a micro-batch: of a single one batch norms have no variance

Context = Callable[[], AbstractContextManager[Any]]


class Moments(NamedTuple):
    """What is kept of the gradients of the parts of a batch.

    Attributes:
        part_sq: Mean over the parts of the squared norm of a part's gradient.
        mean_sq: Squared norm of the mean gradient.
        size: Samples in a part.
        parts: Number of parts.
    """

    part_sq: float
    mean_sq: float
    size: int
    parts: int


def per_sample_moments(model: Any, batch: Any, context: Context, scale: float = 1.0) -> Moments:
    """Take the gradient of each sample by itself, some at once (``torch.func.vmap``).

    Args:
        model: Its trainable parameters count. Each sample draws its own dropout.
        batch: Tensors of shape (batch, ...), however nested.
        context: What the loss is computed in, such as autocast.
        scale: Factor of the batch's loss in the backward pass, for float16; the moments are those without it.

    Raises:
        RuntimeError: If the network can't be computed under vmap.
    """
    assert isinstance(model, nn.Module)
    loss_of, rows = _Loss(model), batch_rows(batch)
    scale = scale / len(rows[0])  # a sample's share in the loss of the batch, or float16 would overflow earlier
    parameters = {name: p.detach() for name, p in loss_of.named_parameters() if p.requires_grad}
    chunk = max(1, LARGEST // sum(p.numel() for p in parameters.values()))

    def loss(parameters: dict[str, Tensor], *sample: Tensor) -> Tensor:
        tensors = iter(sample)
        alone = apply_to_collection(batch, Tensor, lambda _: next(tensors).unsqueeze(0))  # a batch of one
        return functional_call(loss_of, parameters, (alone,)) * scale

    sums = _Sums()
    for samples in zip(*(row.split(chunk) for row in rows), strict=True):
        gradients = vmap(grad(loss), in_dims=(None, *[0] * len(rows)), randomness="different")
        with context(), warnings.catch_warnings():
            # Operations without a rule of their own are computed sample by sample: the numbers are the same.
            warnings.filterwarnings("ignore", message="There is a performance drop")
            sums.add(gradients(parameters, *samples).values())
    return sums.moments(1, scale)


def micro_batch_moments(model: Any, batch: Any, context: Context, scale: float = 1.0) -> Moments:
    """Take the gradients of up to 8 equal micro-batches, one after the other; samples that are left over don't count.

    They are drawn at random from the batch: neighbours may be alike, as texts of the same length.

    Args:
        model: As of `per_sample_moments`.
        batch: As of `per_sample_moments`; of 4 samples or more.
        context: As of `per_sample_moments`.
        scale: As of `per_sample_moments`.
    """
    samples = len(batch_rows(batch)[0])
    size = max(samples // MICRO_BATCHES, FEWEST)
    scale = scale * size / samples
    parameters = [p for p in model.parameters() if p.requires_grad]
    sums = _Sums()
    for rows in torch.randperm(samples)[: samples - samples % size].split(size):
        with context():
            loss = model.batch_loss(part_of(batch, rows))
        # Neither fills `.grad` nor calls the hooks of DDP.
        gradients = torch.autograd.grad(loss * scale, parameters, materialize_grads=True)
        sums.add(gradient.unsqueeze(0) for gradient in gradients)
    return sums.moments(size, scale)


def why_micro_batches(model: nn.Module) -> str | None:
    """Return what of a model is known to rule out gradients of single samples; None where nothing is.

    Args:
        model: In the mode that it is trained in.
    """
    if getattr(model, "couples_samples", False):
        return "the loss of a sample depends on the others of its batch (couples_samples)"
    for name, part in model.named_modules():
        if isinstance(part, _BatchNorm) and (part.training or part.running_mean is None):
            return f"{name} ({type(part).__name__}) normalises over a batch"
        if isinstance(part, nn.RNNBase):
            return f"{name} (nn.{type(part).__name__}) has no rule for torch.func.vmap"
    return None


def batch_rows(batch: Any) -> list[Tensor]:
    """Return the tensors of a batch, which is nested in any way."""
    found: list[Tensor] = []
    apply_to_collection(batch, Tensor, lambda tensor: found.append(tensor) or tensor)
    return found


def part_of(batch: Any, rows: Tensor) -> Any:
    """Return samples of a batch by their numbers, int64 of shape (samples,), nested as they are."""
    return apply_to_collection(batch, Tensor, lambda tensor: tensor[rows.to(tensor.device)])


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Compute losses without leaving a trace in buffers, ranges of `QAT` and generators, and without compiled code.

    Compiled code would be compiled again for the size of a micro-batch, and then for any size. An exception that passes
    through ends the fit: nothing is restored then.
    """
    owners = [(part._buffers, name, buffer) for part in model.modules() for name, buffer in part._buffers.items()]
    buffers = [(owner, name, buffer, buffer.clone()) for owner, name, buffer in owners if buffer is not None]
    forwards = [vars(part).get("forward") for part in model.modules()]
    ranges = [(one, dict(vars(one))) for one in forwards if isinstance(one, Rounding)]
    of_mps = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None  # isolate_rng leaves it out
    with isolate_rng(), torch.compiler.set_stance("force_eager"):
        yield
    if of_mps is not None:
        torch.mps.set_rng_state(of_mps)
    for one, before in ranges:
        vars(one).update(before)
    with torch.no_grad():
        for owner, name, buffer, before in buffers:
            owner[name] = buffer
            buffer.copy_(before)


class _Loss(nn.Module):
    """Calls ``batch_loss`` as a forward pass, as ``functional_call`` wants it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model: Any = model

    def forward(self, batch: Any) -> Tensor:
        return self.model.batch_loss(batch)


class _Sums:
    """Sums over the gradients of parts of a batch, so that not all of them need exist at once."""

    def __init__(self) -> None:
        self.squares: list[Tensor] = []  # of parts, (part,)
        self.totals: list[Tensor] = []  # of each parameter

    def add(self, gradients: Iterable[Tensor]) -> None:
        """Add some parts: for each parameter a tensor of shape (part, *parameter)."""
        wide = [g.detach().to(torch.promote_types(g.dtype, torch.float32)) for g in gradients]
        self.squares.append(torch.stack([g.reshape(len(g), -1).square().sum(dim=1) for g in wide]).sum(dim=0))
        sums = [g.sum(dim=0) for g in wide]
        self.totals = [a + b for a, b in zip(self.totals, sums, strict=True)] if self.totals else sums

    def moments(self, size: int, scale: float) -> Moments:
        """Return the moments of parts with this many samples."""
        squares = torch.cat(self.squares).cpu().double() / scale**2
        total = torch.stack([total.square().sum() for total in self.totals]).cpu().double().sum() / scale**2
        return Moments(squares.mean().item(), total.item() / len(squares) ** 2, size, len(squares))

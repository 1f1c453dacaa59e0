"""Networks of one kind that are trained on the same batches, each as if it were alone."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _NormBase

from litlab.errors import UserError, first_line


class Ensemble(nn.Module):
    """Networks whose predictions are averaged (Lakshminarayanan et al. 2017, arXiv:1612.01474).

    In training it returns the logits of all members, shape (member, batch, classes); in evaluation the logarithm of
    their mean probability, shape (batch, classes), which stands where the logits of one network would.

    The members are modules of their own, in ``members``: so optimizers, checkpoints and callbacks see what they see of
    a single network. They are computed one after the other, or at once, by `torch.func.vmap` over their stacked weights
    (https://docs.pytorch.org/tutorials/intermediate/ensembling.html). Both give the same numbers up to rounding.

    Args:
        members: The networks.
        vectorize: Whether they are computed at once; None: on a GPU, if vmap can take them.

    Raises:
        UserError: They are to be computed at once, and vmap can't take them.
    """

    def __init__(self, members: Sequence[nn.Module], vectorize: bool | None = None) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.vectorize = vectorize
        self.obstacle = _obstacle(members)
        if vectorize and self.obstacle:
            raise UserError(f"model.vectorize: vmap can't take {self.kind} ({self.obstacle}); leave it out")
        self._apart = False

    @property
    def kind(self) -> str:
        """Name of the members' class."""
        return type(self.members[0]).__name__

    @property
    def at_once(self) -> bool:
        """Whether the members are computed at once, on the device where they are."""
        tracing: bool = torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
        if tracing or torch.compiler.is_exporting():  # vmap would fix the size of the batch
            return False
        if self.vectorize is None:
            return self.obstacle is None and next(self.parameters()).is_cuda
        return self.vectorize

    @property
    def description(self) -> str:
        """How the members are computed, in one line."""
        if self.at_once:
            how = "at once, by vmap"
        elif self.obstacle:
            how = f"one after the other, as vmap can't take them ({self.obstacle})"
        else:
            how = "one after the other"
        return f"ensemble: {len(self.members)} x {self.kind}, computed {how}"

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Return the logits of all members in evaluation, too, as in training."""
        self._apart = True
        try:
            yield
        finally:
            self._apart = False

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return logits of shape (member, batch, classes); in evaluation those of the ensemble, (batch, classes).

        Args:
            *args: What a member takes.
            **kwargs: What a member takes by name.

        Raises:
            UserError: The members are to be computed at once, and vmap can't take them.
        """
        if self.at_once:
            logits = self._vectorized(args, kwargs)
        else:
            logits = torch.stack([member(*args, **kwargs) for member in self.members])
        return logits if self.training or self._apart else mean_prediction(logits)

    def _vectorized(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        # Stacked anew for each batch, unlike torch.func.stack_module_state, whose stacks would have to be trained in
        # place of the members.
        states = [{**dict(member.named_parameters()), **dict(member.named_buffers())} for member in self.members]
        stacked = {name: torch.stack([state[name] for state in states]) for name in states[0]}

        def member(state: dict[str, Tensor]) -> Tensor:
            return functional_call(self.members[0], state, args, kwargs)

        try:
            return vmap(member, randomness="different")(stacked)
        except RuntimeError as error:
            if "vmap" not in str(error):
                raise
            reason = f"{self.kind}: {first_line(error).rstrip('.')}"
            raise UserError(f"model.vectorize: vmap can't take the network ({reason}); set it to false") from error


def mean_prediction(logits: Tensor) -> Tensor:
    """Return the logarithm of the mean probability, shape (batch, classes), of logits (member, batch, classes).

    Those of one network, (batch, classes), stay as they are.
    """
    if logits.ndim == 2:
        return logits
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.log_softmax(wide, dim=-1).logsumexp(dim=0) - math.log(len(logits))


def bootstrap_counts(members: int, samples: int, seed: int) -> Tensor:
    """Draw as many training samples as there are for each member, with replacement.

    Returns:
        How often each member has drawn each sample, uint8 of shape (member, sample).
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = (torch.randint(samples, (samples,), generator=generator) for _ in range(members))
    return torch.stack([numbers.bincount(minlength=samples) for numbers in drawn]).to(torch.uint8)


def _obstacle(members: Sequence[nn.Module]) -> str | None:
    """Return why vmap can't take networks, as far as their parts show it; None where nothing does."""
    for part in members[0].modules():
        name = type(part).__name__
        if isinstance(part, nn.RNNBase):
            return f"it has no rule for {name}"
        if isinstance(part, _NormBase) and part.track_running_stats:
            return f"{name} changes its running statistics in place"
    shapes = [{name: tensor.shape for name, tensor in member.state_dict().items()} for member in members]
    return None if all(shape == shapes[0] for shape in shapes) else "the members differ in their shapes"

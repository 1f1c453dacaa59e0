"""Networks of one kind that are trained on the same batches, each as if it were alone."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F

from litlab.errors import UserError, first_line
from litlab.nn.vmapping import refused_by_vmap, why_not_vmap


class Ensemble(nn.Module):
    """Networks whose predictions are averaged (Lakshminarayanan et al. 2017, arXiv:1612.01474).

    It returns the logits of all members, shape (member, batch, classes); `mean_prediction` combines them.

    The members are modules of their own, in ``members``: so optimizers, checkpoints and callbacks see what they see of
    a single network. They are computed one after the other, or at once, by `torch.func.vmap` over their stacked weights
    (https://docs.pytorch.org/tutorials/intermediate/ensembling.html). Both give the same numbers up to rounding.

    Args:
        members: The networks.
        vectorize: Whether they are computed at once; None: on a GPU, if vmap can take them.

    Raises:
        UserError: They are to be computed at once, and vmap can't take them.
    """

    is_ensemble = True

    def __init__(self, members: Sequence[nn.Module], vectorize: bool | None = None) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.vectorize = vectorize
        self.obstacle: str | None = None  # why vmap can't take them
        if reason := _difference(members) or why_not_vmap(members[0]):
            self._refuse(reason)

    @property
    def at_once(self) -> bool:
        """Whether the members are computed at once, on the device where they are."""
        tracing: bool = torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
        if self.obstacle or tracing or torch.compiler.is_exporting():  # vmap would fix the size of the batch
            return False
        return next(self.parameters()).is_cuda if self.vectorize is None else self.vectorize

    @property
    def description(self) -> str:
        """How the members are computed, in one line."""
        how = "at once, by vmap" if self.at_once else "one after the other"
        why = f", as vmap can't take them ({self.obstacle})" if self.obstacle else ""
        return f"ensemble: {len(self.members)} x {type(self.members[0]).__name__}, computed {how}{why}"

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the logits of all members, shape (member, batch, classes).

        Args:
            *args: What a member takes.
            **kwargs: What a member takes by name.

        Raises:
            UserError: The members are to be computed at once, and vmap can't take them.
        """
        if self.at_once and (logits := self._vectorized(args, kwargs)) is not None:
            return logits
        return torch.stack([member(*args, **kwargs) for member in self.members])

    def _vectorized(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
        """Compute all members at once; None if vmap can't take them, and they need not be."""
        if reason := why_not_vmap(self.members[0]):
            return self._give_up(reason)
        # Stacked anew for each batch, unlike torch.func.stack_module_state, whose stacks would have to be trained in
        # place of the members.
        states = [{**dict(member.named_parameters()), **dict(member.named_buffers())} for member in self.members]
        stacked = {name: torch.stack([state[name] for state in states]) for name in states[0]}
        # In inference mode tensors have no versions; buffers change in training.
        versions = {name: tensor._version for name, tensor in stacked.items() if self.training}
        changed: list[str] = []

        def member(state: dict[str, Tensor]) -> Tensor:
            given = dict(state)
            logits = functional_call(self.members[0], given, args, kwargs)
            changed.extend(name for name in given if given[name] is not state[name])
            return logits

        try:
            logits = vmap(member, randomness="different")(stacked)
        except RuntimeError as error:
            if not refused_by_vmap(error):
                raise
            return self._give_up(first_line(error).rstrip("."), error)
        changed += [name for name, version in versions.items() if stacked[name]._version != version]
        return self._give_up(f"it changes {changed[0]}, which would be lost") if changed else logits

    def _give_up(self, reason: str, error: Exception | None = None) -> None:
        """Compute the members one after the other from now on, and say so."""
        self._refuse(reason, error)
        rank_zero_info(self.description)

    def _refuse(self, reason: str, error: Exception | None = None) -> None:
        self.obstacle = reason
        if self.vectorize:
            kind = type(self.members[0]).__name__
            raise UserError(f"model.vectorize: vmap can't take {kind} ({reason}); leave it out") from error


def mean_prediction(logits: Tensor) -> Tensor:
    """Return the logarithm of the mean probability, shape (batch, classes), of logits (member, batch, classes).

    It stands where the logits of one network would. Those, (batch, classes), stay as they are.
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


def _difference(members: Sequence[nn.Module]) -> str | None:
    """Return how members differ in more than their weights; vmap runs the code of the first for all."""
    if len({repr(member) for member in members}) > 1:
        return "the members differ in their parts"
    shapes = [{name: tensor.shape for name, tensor in member.state_dict().items()} for member in members]
    return None if all(shape == shapes[0] for shape in shapes) else "the members differ in their shapes"

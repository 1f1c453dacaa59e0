"""Networks of one kind that are trained on the same batches, each as if it were alone."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jsonargparse import ArgumentParser
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F

from litlab.errors import UserError, first_line


class Ensemble(nn.Module):
    """Networks whose predictions are averaged (Lakshminarayanan et al. 2017, arXiv:1612.01474).

    In training it returns the logits of all members, (member, batch, classes); else the logarithm of their mean
    probability, (batch, classes), which stands where the logits of one network would.

    The members are modules of their own: optimizers, checkpoints and callbacks see what they see of a single network.
    They are computed one after the other, or at once, by `torch.func.vmap` over their stacked weights
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
        if vectorize and (reason := why_not_vmap(members[0])):
            raise UserError(f"model.vectorize: vmap can't take the network ({reason}); leave it out")

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return logits, see the class, for what a member takes."""
        at_once = next(self.parameters()).is_cuda if self.vectorize is None else self.vectorize
        # vmap would fix the size of the batch.
        exporting = torch.compiler.is_exporting() or torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
        if at_once and not exporting and why_not_vmap(self.members[0]) is None:
            logits = self._compute_at_once(args, kwargs)
        else:
            logits = torch.stack([member(*args, **kwargs) for member in self.members])
        return logits if self.training else mean_prediction(logits)

    def _compute_at_once(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        # Not torch.func.stack_module_state, whose stacks would have to be trained in place of the members.
        states = [dict(member.named_parameters()) for member in self.members]
        stacked = {name: torch.stack([state[name] for state in states]) for name in states[0]}
        call = vmap(lambda state: functional_call(self.members[0], state, args, kwargs), randomness="different")
        try:
            return call(stacked)
        except RuntimeError as error:
            if self.vectorize or not refused_by_vmap(error):
                raise
            rank_zero_info(f"model.members: computed one after the other, as vmap refuses ({first_line(error)})")
            self.vectorize = False
            return torch.stack([member(*args, **kwargs) for member in self.members])


def mean_prediction(logits: Tensor) -> Tensor:
    """Return the logarithm of the mean probability, (batch, classes), of logits (member, batch, classes).

    Those of one network, (batch, classes), stay as they are.
    """
    if logits.ndim == 2:
        return logits
    return F.log_softmax(logits.float(), dim=-1).logsumexp(dim=0) - math.log(len(logits))


def build_networks(network: nn.Module | Callable[[], nn.Module], count: int, block: Any) -> list[nn.Module]:
    """Return several networks of one kind, each with its own initialisation.

    Args:
        network: A network, or what makes one.
        count: How many there are to be.
        block: The block of the config (``class_path`` and ``init_args``) that a network was made from. Without it they
            are copies, which is right only where weights are loaded next: see `are_copies`.
    """
    if not isinstance(network, nn.Module):
        return [network() for _ in range(count)]
    if not isinstance(block, dict):
        return [network, *(copy.deepcopy(network) for _ in range(count - 1))]
    parser = ArgumentParser()
    parser.add_argument("--network", type=nn.Module)
    config = parser.parse_object({"network": block})
    return [network, *(parser.instantiate_classes(config)["network"] for _ in range(count - 1))]


def are_copies(networks: Sequence[nn.Module]) -> bool:
    """Return whether several networks start with the same weights, and so would learn the same."""
    first, *others = (list(network.parameters()) for network in networks)
    return any(all(map(torch.equal, first, other)) for other in others)


def why_not_vmap(network: nn.Module) -> str | None:
    """Return why `torch.func.vmap` can't take a network, as it is now, as far as its parts show it; else None."""
    for part in network.modules():
        name = type(part).__name__
        if isinstance(part, nn.RNNBase):
            return f"it has no rule for {name}"
        if any(buffer is not None for buffer in part._buffers.values()):
            return f"{name} has buffers, whose changes would be lost"
        if "forward" in vars(part):
            return f"a callback has replaced the forward of {name}"
    return None


def refused_by_vmap(error: RuntimeError) -> bool:
    """Return whether an error is that vmap, or torch.func within it, can't compute something."""
    return any(words in str(error) for words in ("vmap", "Batching rule", "torch.func"))

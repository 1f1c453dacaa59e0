"""Networks of one kind that are trained on the same batches, each as if it were alone."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jsonargparse import ArgumentParser
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional as F


class Ensemble(nn.Module):
    """Networks whose predictions are averaged (Lakshminarayanan et al. 2017, arXiv:1612.01474).

    In training, it returns the logits of all members, (member, batch, classes); otherwise the
    logarithm of their mean probability, (batch, classes), in place of a single network's logits.

    The members are modules of their own: optimizers, checkpoints and callbacks see what they see of
        a single network.

    Args:
        members: The networks.
        vectorize: Whether training computes them at once, by `torch.func.vmap` over their stacked
            weights (https://docs.pytorch.org/tutorials/intermediate/ensembling.html), instead of
            one after the other. The numbers are the same up to rounding. vmap refuses nn.LSTM,
            branches on values and buffers that change, such as those of batch norms.
    """

    def __init__(self, members: Sequence[nn.Module], vectorize: bool = False) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.vectorize = vectorize

    @property
    def parallel_plan(self) -> Any:
        """The `ParallelPlan` of the members, where they have one."""
        plan: Any = self.members[0].parallel_plan
        patterns = vars(plan).items()
        return replace(
            plan, **{name: [f"members.*.{part}" for part in parts] for name, parts in patterns}
        )

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return logits, see the class, for what a member takes."""
        if self.training and self.vectorize:
            # Not torch.func.stack_module_state, whose stacks would have to be trained in place of
            # the members.
            states = [dict(member.named_parameters()) for member in self.members]
            stacked = {name: torch.stack([state[name] for state in states]) for name in states[0]}
            call = partial(functional_call, self.members[0], args=args, kwargs=kwargs)
            return vmap(call, randomness="different")(stacked)
        logits = torch.stack([member(*args, **kwargs) for member in self.members])
        return logits if self.training else mean_prediction(logits)


def mean_prediction(logits: Tensor) -> Tensor:
    """Return the logarithm of the mean probability, (batch, classes), of logits (member, batch,
    classes).
    """
    return F.log_softmax(logits.float(), dim=-1).logsumexp(dim=0) - math.log(len(logits))


def build_networks(
    network: nn.Module | Callable[[], nn.Module], count: int, block: Any
) -> list[nn.Module]:
    """Return several networks of one kind, each with its own initialisation.

    Args:
        network: A network, or what makes one.
        count: How many there are to be.
        block: The block of the config (``class_path`` and ``init_args``) that a network was made
            from. Without it they are copies, which is right only where weights are loaded next: see
            `are_copies`.
    """
    if not isinstance(network, nn.Module):
        return [network() for _ in range(count)]
    if not isinstance(block, dict):
        return [network, *(copy.deepcopy(network) for _ in range(count - 1))]
    parser = ArgumentParser()
    parser.add_argument("--network", type=nn.Module)
    config = parser.parse_object({"network": block})
    return [network, *(parser.instantiate_classes(config)["network"] for _ in range(count - 1))]


def split_members(module: nn.Module) -> list[Any]:
    """Return the networks of a module, each with layers of its own: the members of an ensemble, or
    the module alone.
    """
    ensembles = [part for part in module.modules() if isinstance(part, Ensemble)]
    return list(ensembles[0].members) if ensembles else [module]


def are_copies(networks: Sequence[nn.Module]) -> bool:
    """Return whether several networks start with the same weights, and so would learn the same."""
    first, *others = (list(network.parameters()) for network in networks)
    return any(all(map(torch.equal, first, other)) for other in others)

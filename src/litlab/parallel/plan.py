"""How a network can be divided among processes, said beside the network."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torch import nn

from litlab.errors import UserError

ATTRIBUTE = "parallel_plan"  # of a network's class


@dataclass(frozen=True)
class ParallelPlan:
    """Which parts of a network processes share, by their names in it; ``*`` stands for one part of a name.

    Args:
        blocks: Modules that FSDP shards and gathers as one, such as ``blocks.*``. What is in none is gathered with the
            network as a whole.
        columns: Linear layers of which each process computes a part of the outputs.
        fused: Linear layers that compute several things side by side, such as queries, keys and values, and how many;
            each process computes a part of each.
        rows: Linear layers whose inputs are the parts that the layers before compute; their outputs are summed.
        counts: Attributes that say how many there are of what is divided, such as ``blocks.*.attention.num_heads``.
    """

    blocks: Sequence[str] = ()
    columns: Sequence[str] = ()
    fused: Mapping[str, int] = field(default_factory=dict)
    rows: Sequence[str] = ()
    counts: Sequence[str] = ()


def networks(module: nn.Module) -> dict[str, nn.Module]:
    """Return the children of a LightningModule that have parameters, by name: each is called as a whole."""
    return {name: child for name, child in module.named_children() if any(True for _ in child.parameters())}


def plan_of(network: nn.Module) -> ParallelPlan:
    """Return what the network says; else a plan that shards the blocks of its ModuleLists and Sequentials."""
    plan = getattr(network, ATTRIBUTE, None)
    return plan if isinstance(plan, ParallelPlan) else ParallelPlan(blocks=tuple(_blocks(network)))


def matches(network: nn.Module, pattern: str) -> list[str]:
    """Return the names of the modules that a pattern names.

    Raises:
        UserError: If there are none: the plan is for another network.
    """
    regex = re.compile(re.escape(pattern).replace(r"\*", r"[^.]+"))
    names = [name for name, _ in network.named_modules() if regex.fullmatch(name)]
    if not names:
        raise UserError(
            f"trainer.strategy: the parallel_plan of {type(network).__name__} names {pattern}, and there is no such "
            "module; its settings may be others than the plan is for"
        )
    return names


def _blocks(network: nn.Module, prefix: str = "") -> Iterator[str]:
    for name, child in network.named_children():
        if isinstance(child, nn.ModuleList | nn.Sequential):
            for inner, block in child.named_children():
                if any(True for _ in block.parameters()):
                    yield f"{prefix}{name}.{inner}"
        else:
            yield from _blocks(child, f"{prefix}{name}.")

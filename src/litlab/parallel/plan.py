"""How a network can be divided among processes, said beside the network."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import nn

from litlab.errors import UserError
from litlab.nn.selection import find_blocks, is_callable

ATTRIBUTE = "parallel_plan"  # of a network's class


@dataclass(frozen=True)
class ParallelPlan:
    """Which parts of a network processes share, by their names in it; ``*`` stands for one part of a name.

    Args:
        blocks: Modules that FSDP shards and gathers as one, such as ``blocks.*``; see `litlab.nn.selection`. What is in
            none is gathered with the network as a whole.
        columns: Linear layers of which each process computes a part of the outputs: consecutive ones, such as those of
            whole heads.
        rows: Linear layers whose inputs are the parts that the layers before compute; their outputs are summed.
        counts: Attributes that say how many there are of what is divided, such as ``blocks.*.attention.num_heads``.

    Raises:
        UserError: If a value is of another type.
    """

    blocks: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[str] = ()
    counts: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("blocks", "columns", "rows", "counts"):
            value = getattr(self, name)
            if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
                raise UserError(f"{ATTRIBUTE}: {name} is {value!r}; give a list of names, such as ['blocks.*']")


def networks(module: nn.Module) -> dict[str, nn.Module]:
    """Return the children of a LightningModule that have parameters, by name: each is called as a whole.

    A ModuleList or ModuleDict can't be called: it stands for the modules in it. Lists of parameters are not networks.
    """
    found: dict[str, nn.Module] = {}
    for name, child in module.named_children():
        if not is_callable(child):
            found |= {f"{name}.{inner}": network for inner, network in networks(child).items()}
        elif not isinstance(child, nn.ParameterList | nn.ParameterDict) and _has_parameters(child):
            found[name] = child
    return {name: one for name, one in found.items() if next(first for first in found if found[first] is one) == name}


def plan_of(network: nn.Module) -> ParallelPlan:
    """Return what the network says; else a plan that shards the blocks of its ModuleLists and Sequentials.

    Raises:
        UserError: If what it says is no `ParallelPlan`.
    """
    plan = getattr(network, ATTRIBUTE, None)
    if plan is not None and not isinstance(plan, ParallelPlan):
        raise UserError(
            f"trainer.strategy: {ATTRIBUTE} of {type(network).__name__} is a {type(plan).__name__}; it must be a "
            "litlab.parallel.ParallelPlan"
        )
    return plan or ParallelPlan(blocks=tuple(find_blocks(network)))


def blocks_of(network: nn.Module) -> list[str]:
    """Return the names of the blocks of a network, in order."""
    return list(find_blocks(network))


def check_weights(module: nn.Module, parts: Iterable[str]) -> None:
    """Check that each weight is in one part of a module only.

    Strategies divide one part after the other: a weight of two parts would silently become two weights.

    Args:
        module: What is divided.
        parts: Names of the modules in it that are divided on their own; one may be within another.

    Raises:
        UserError: If a weight is in two of them, or in one of them and in the rest of the module.
    """
    parts = sorted(parts, key=len, reverse=True)
    places: dict[nn.Parameter, tuple[str, str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        place = next((part for part in parts if name.startswith(f"{part}.")), "")
        first, where = places.setdefault(parameter, (name, place))
        if where != place:
            raise UserError(
                f"trainer.strategy: {first} and {name} of {type(module).__name__} are one weight, and it would divide "
                "them one by one; use ddp"
            )


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


def _has_parameters(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())

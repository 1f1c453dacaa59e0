"""How a network can be divided among processes, said beside the network."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torch import nn

from litlab.errors import UserError


@dataclass(frozen=True)
class ParallelPlan:
    """Which parts of a network processes share, by the patterns of `litlab.nn.selection`.

    Args:
        blocks: Modules that FSDP shards and gathers as one, such as ``blocks.*``. Everything else
            is gathered with the network as a whole.
        columns: Linear layers of which each process computes a part of the outputs: consecutive
            ones, such as those of whole heads.
        rows: Linear layers whose inputs are the parts computed by the layers before; their outputs
            are summed.
        counts: Attributes with numbers that are divided, too, such as
            ``blocks.*.attention.num_heads``.
    """

    blocks: Sequence[str] = ()
    columns: Sequence[str] = ()
    rows: Sequence[str] = ()
    counts: Sequence[str] = ()


def plan_of(network: nn.Module) -> ParallelPlan:
    """Return the plan of a network, which is empty if it has none; `find_blocks` finds the blocks
    of both.
    """
    return getattr(network, "parallel_plan", ParallelPlan())


def check_shared_weights(module: nn.Module, parts: Iterable[str]) -> None:
    """Check that each weight is in one part of a module only.

    Strategies divide one part after the other: a weight of two parts would silently become two
        weights.

    Args:
        module: What is divided.
        parts: Names of the modules in it that are divided on their own; one may be within another.

    Raises:
        UserError: If a weight is in two of them, or in one of them and in the rest of the module.
    """
    # A weight belongs to the innermost part that it is in, or to the rest, ""
    inner_first = sorted(parts, key=len, reverse=True)
    places: dict[nn.Parameter, tuple[str, str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        owner = next((owner for owner in inner_first if name.startswith(f"{owner}.")), "")
        other_name, other_owner = places.setdefault(parameter, (name, owner))
        if other_owner != owner:
            raise UserError(
                f"trainer.strategy: {other_name} and {name} of {type(module).__name__} share one "
                "weight, which it would divide twice; use ddp"
            )

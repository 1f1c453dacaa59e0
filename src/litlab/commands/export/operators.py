"""The operators that a graph calls, by names such as ``aten::add.Tensor``."""

from collections.abc import Iterable
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import GraphModule

from litlab.errors import UserError

OF_TORCH = ("aten", "prim", "prims", "quantized")  # names of groups of operators
OF_TORCHAO = ("torchao", "quantized_decomposed")


def operators_of(program: ExportedProgram) -> set[str]:
    """Return the operators of a graph, and of the graphs in it."""
    graphs = [module.graph for module in program.graph_module.modules() if isinstance(module, GraphModule)]
    return {node.target.name() for graph in graphs for node in graph.nodes if isinstance(node.target, OpOverload)}


def operators_of_script(script: torch.jit.ScriptModule) -> set[str]:
    """Return the operators of TorchScript. `torch.jit.export_opnames` would, but crashes on what was traced."""
    found, blocks = set[str](), list[Any]([script.inlined_graph])
    for block in blocks:
        for node in block.nodes():
            found.add(node.kind())
            blocks.extend(node.blocks())
    return found


def check_operators(names: Iterable[str]) -> None:
    """Refuse a graph that calls what the folder would not bring along.

    Raises:
        UserError: It calls an operator that neither torch nor torchao defines.
    """
    for name in sorted(names):
        if name.partition("::")[0] not in (*OF_TORCH, *OF_TORCHAO):
            raise UserError(
                f"export: the model calls {name}, an operator of its own that an exported folder does not bring along; "
                "use the composition of torch's operations in its place (docs/operators.md)"
            )


def calls_torchao(names: Iterable[str]) -> bool:
    """Return whether a graph has operators that torchao defines, without which it can't be loaded in PyTorch."""
    return any(name.partition("::")[0] in OF_TORCHAO for name in names)

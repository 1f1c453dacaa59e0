"""A model with its preprocessing as a graph with free sizes."""

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._dynamo.exc import TorchDynamoException
from torch._subclasses.fake_tensor import UnsupportedOperatorException
from torch.export import Dim, ExportedProgram
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError, GuardOnDataDependentSymNode

from litlab.commands.export.noise import quiet_exporters
from litlab.data.serving import BATCH, Serving
from litlab.errors import UserError, first_line

# Of torch.export, about the model.
REFUSALS = (TorchDynamoException, ConstraintViolationError, GuardOnDataDependentSymNode, UnsupportedOperatorException)


def exported_program(module: nn.Module, serving: Serving, nested: bool = True) -> ExportedProgram:
    """Trace a module for batches of any size.

    Args:
        module: It takes raw inputs.
        serving: Which inputs these are, and which of their axes are free.
        nested: Whether it takes them as ``*raw``, as `Servable` does. The module of a graph does not.

    Raises:
        UserError: It can't be traced, or makes a constant of a free size.
    """
    free = {BATCH: Dim(BATCH, min=1)} | {axis: Dim(axis, min=1, max=most) for axis, most in serving.most.items()}
    shapes: Any = tuple(
        {number: free[axis] for number, axis in enumerate(spec.shape) if isinstance(axis, str)}
        for spec in serving.inputs
    )
    try:
        with quiet_exporters(), torch.no_grad():
            program = torch.export.export(module, serving.example(), dynamic_shapes=(shapes,) if nested else shapes)
    except REFUSALS as error:
        raise UserError(_untraceable(str(error))) from error
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    names = program.graph_signature.user_inputs
    by_name = {node.name: node.meta["val"] for node in nodes}
    check_axes(serving, [list(by_name[str(name)].shape) for name in names], lambda size: isinstance(size, torch.SymInt))
    return program


def check_axes(serving: Serving, shapes: list[list[Any]], is_free: Callable[[Any], bool]) -> None:
    """Compare the axes of a graph's inputs with what they should be.

    Another export in the same process can silently turn a free size into a constant.

    Args:
        serving: What they should be.
        shapes: What they are.
        is_free: Tells whether a size is free.

    Raises:
        RuntimeError: They differ.
    """
    for spec, shape in zip(serving.inputs, shapes, strict=True):
        for wanted, size in zip(spec.shape, shape, strict=True):
            if is_free(size) != isinstance(wanted, str) or (isinstance(wanted, int) and size != wanted):
                raise RuntimeError(f"the graph's input {spec.name!r} has the shape {shape} instead of {spec.shape}")


def _untraceable(text: str) -> str:
    if found := re.search(r"You marked (\w+) as dynamic but your code specialized it to be a constant \((\d+)\)", text):
        return (
            f"export: the model makes the free size {found[1]!r} a constant; use x.shape[0] where it calls len(x), and "
            "no branch that depends on a size"
        )
    return f"export: torch.export can't trace the model ({first_line(Exception(text)).rstrip('.')}); see docs/deploy.md"

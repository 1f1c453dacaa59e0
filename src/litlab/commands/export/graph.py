"""A model with its preprocessing as a graph with free sizes, and the files of each format."""

import contextlib
import copy
import io
import logging
import re
import traceback
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule

from litlab.artifact.artifact import compile_graph
from litlab.artifact.servable import Servable
from litlab.data.serving import BATCH, Serving
from litlab.errors import UserError, first_line, list_causes


def trace(module: nn.Module, serving: Serving) -> ExportedProgram:
    """Trace a module that takes raw inputs, for batches of any size."""
    free = {BATCH: Dim(BATCH, min=1)} | {
        axis: Dim(axis, min=1, max=most) for axis, most in serving.most.items()
    }
    shapes: Any = tuple(
        {number: free[axis] for number, axis in enumerate(spec.shape) if isinstance(axis, str)}
        for spec in serving.inputs
    )
    takes_star = not isinstance(module, GraphModule)
    try:
        with quiet_exporters(), torch.no_grad():
            program = torch.export.export(
                module, serving.example(), dynamic_shapes=(shapes,) if takes_star else shapes
            )
    except Exception as error:  # of many kinds, and all about the model, which was tested before
        raise UserError(_explain_refusal(error, module)) from error

    placeholders = program.graph.find_nodes(op="placeholder")  # weights, then inputs
    inputs = placeholders[-len(serving.inputs) :]
    check_axes(serving, [list(node.meta["val"].shape) for node in inputs])
    return program


def check_axes(serving: Serving, shapes: list[list[Any]]) -> None:
    """Compare the axes of a graph's inputs with what they should be; a size that is no integer is
    free.

    Another export in the same process can silently turn a free size into a constant.
    """
    for spec, shape in zip(serving.inputs, shapes, strict=True):
        sizes = [size if isinstance(size, int) else None for size in shape]
        if sizes != [axis if isinstance(axis, int) else None for axis in spec.shape]:
            raise RuntimeError(
                f"the graph's input {spec.name!r} has the shape {shape} instead of {spec.shape}"
            )


def write_graph(
    form: str,
    program: ExportedProgram | None,
    reference: Servable,
    path: Path,
    opset: int | None = None,
) -> None:
    """Write a model in a format; the reference is for torchscript and the names of inputs and
    outputs.
    """
    with quiet_exporters(), torch.no_grad():
        if program is None:
            _write_torchscript(reference, path)
        elif form == "pt2":
            torch.export.save(program, path)
        elif form == "onnx":
            _write_onnx(program, reference.serving, path, opset)
        else:
            compile_graph(program, path)


def _write_onnx(program: ExportedProgram, serving: Serving, path: Path, opset: int | None) -> None:
    operators: Any = import_module("onnxscript").opset18
    products: Any = {
        torch.ops.aten._int_mm.default: lambda left, right: operators.MatMulInteger(left, right)
    }
    try:
        graph = torch.onnx.export(
            program,
            dynamo=True,
            opset_version=opset,
            external_data=False,
            verbose=False,
            custom_translation_table=products,
            input_names=serving.names,
            output_names=[spec.name for spec in serving.outputs],
        )
    except torch.onnx.errors.OnnxExporterError as error:
        reason = first_line(list_causes(error)[-1])
        raise UserError(
            f"export: ONNX can't express the model ({reason}); choose --format pt2"
        ) from error
    assert graph is not None
    onnx = graph.model
    # Of an opset that is too old or too new torch only logs that it takes another one
    written = onnx.opset_imports[""]
    if opset not in (None, written):
        raise UserError(
            f"--opset: the model can't be written in {opset}, but in {written}; choose that, or "
            "leave it out"
        )
    check_axes(serving, [list(value.shape or ()) for value in onnx.graph.inputs])
    graph.save(path)


def _write_torchscript(reference: Servable, path: Path) -> None:
    # A trace makes a branch on values a constant, which may go unnoticed: that part is scripted.
    model = copy.deepcopy(reference)
    # TorchScript looks at all attributes, and a module of Lightning (2.6.6) without this one raises
    model.model.trainer = SimpleNamespace()  # pyright: ignore[reportAttributeAccessIssue]
    branching = None
    try:
        trace(model, model.serving)
    except Exception as error:  # others than a branch are those of torch.export alone
        branching = _find_branching(error, model)
    if branching is not None:
        _script_parts(model)
        if id(branching) in map(id, model.modules()):  # it is still Python
            raise UserError(
                f"export: {type(branching).__name__} branches on the values of tensors, and "
                "torch.jit.script can't compile it; use torch.where"
            )
    script: Any = torch.jit.trace(model, model.serving.example(), check_trace=False)
    torch.jit.save(torch.jit.freeze(script.eval()), str(path))


def _script_parts(module: nn.Module) -> None:
    """Replace the largest parts of a module that TorchScript can take by their scripts."""
    for name, child in module.named_children():
        try:
            script: Any = torch.jit.script(child)
            setattr(module, name, script)
        except Exception:  # of many kinds: TorchScript knows a part of Python only
            _script_parts(child)


def _find_branching(error: BaseException, module: nn.Module) -> nn.Module | None:
    """Return the part of a module whose branch on values is what torch.export refused, if it is
    one.
    """
    cause = list_causes(error)[-1]
    if "DataDependent" not in type(cause).__name__:
        return None
    parts = {id(part): part for part in module.modules()}  # metrics have an == of their own
    called = [id(frame.f_locals.get("self")) for frame, _ in traceback.walk_tb(cause.__traceback__)]
    return [parts[number] for number in called if number in parts][-1]


@contextlib.contextmanager
def quiet_exporters() -> Iterator[None]:
    """Leave out progress and warnings that are for developers of the exporters, not about the
    model.
    """
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            yield
    finally:
        logging.disable(before)


def _explain_refusal(error: Exception, module: nn.Module) -> str:
    branching = _find_branching(error, module)
    if branching is not None:
        return (
            f"export: {type(branching).__name__} branches on values of tensors, which a traced "
            "graph can't; use torch.where, or try --format torchscript"
        )
    constant = re.search(
        r"You marked (\w+) as dynamic but your code specialized it to be a constant", str(error)
    )
    if constant is None:
        return (
            f"export: torch.export can't trace the model ({first_line(error).rstrip('.')}); see "
            "docs/deploy.md"
        )
    advice = "use x.shape[0] where it calls len(x), and no branch that depends on a size"
    for name, layer in module.named_modules():
        if isinstance(layer, nn.RNNBase) and constant[1] != BATCH:
            advice = (
                f"it unrolls {name} ({type(layer).__name__}) step by step; choose --format "
                "torchscript"
            )
    return f"export: the model makes the free size {constant[1]!r} a constant; {advice}"

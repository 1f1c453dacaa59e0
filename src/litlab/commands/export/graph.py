"""A model with its preprocessing as a graph with free sizes, and the files of each format."""

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._dynamo.exc import TorchDynamoException
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import UnsupportedOperatorException
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError, GuardOnDataDependentSymNode

from litlab.artifact.servable import Servable
from litlab.data.serving import BATCH, Serving
from litlab.errors import UserError, first_line

# Largest difference from eager PyTorch, of a probability or in standard deviations of a column. The kernels are the
# same ones for pt2 and torchscript; the others order and fuse their sums differently.
TOLERANCE = {"onnx": 1e-4, "pt2": 1e-5, "aoti": 1e-4, "torchscript": 1e-5}
# Of torch.export, about the model.
REFUSALS = (TorchDynamoException, ConstraintViolationError, GuardOnDataDependentSymNode, UnsupportedOperatorException)
NAMESPACES = ("aten", "prim", "prims", "quantized", "torchao", "quantized_decomposed")  # of operators that exist there


def trace(module: nn.Module, serving: Serving) -> ExportedProgram:
    """Trace a module for batches of any size.

    Args:
        module: It takes raw inputs: a `Servable`, or the graph of one.
        serving: Which inputs these are, and which of their axes are free.

    Raises:
        UserError: It can't be traced, makes a constant of a free size, or calls an operator of its own.
    """
    free = {BATCH: Dim(BATCH, min=1)} | {axis: Dim(axis, min=1, max=most) for axis, most in serving.most.items()}
    shapes: Any = tuple(
        {number: free[axis] for number, axis in enumerate(spec.shape) if isinstance(axis, str)}
        for spec in serving.inputs
    )
    takes_star = not isinstance(module, GraphModule)
    try:
        with quiet_exporters(), torch.no_grad():
            program = torch.export.export(module, serving.example(), dynamic_shapes=(shapes,) if takes_star else shapes)
    except REFUSALS as error:
        raise UserError(_explain_refusal(error, module)) from error

    sizes = {node.name: node.meta["val"].shape for node in program.graph.nodes if node.op == "placeholder"}
    names = program.graph_signature.user_inputs
    check_axes(serving, [list(sizes[str(name)]) for name in names], lambda size: isinstance(size, torch.SymInt))
    check_operators(program)
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
        for axis, size in zip(spec.shape, shape, strict=True):
            if is_free(size) != isinstance(axis, str) or (isinstance(axis, int) and size != axis):
                raise RuntimeError(f"the graph's input {spec.name!r} has the shape {shape} instead of {spec.shape}")


def check_operators(program: ExportedProgram) -> None:
    """Refuse a graph that calls what the folder would not bring along.

    Raises:
        UserError: It calls an operator that neither torch nor torchao defines.
    """
    graphs = [module.graph for module in program.graph_module.modules() if isinstance(module, GraphModule)]
    for node in (node for graph in graphs for node in graph.nodes):
        if isinstance(node.target, OpOverload) and node.target.namespace not in NAMESPACES:
            raise UserError(
                f"export: the model calls {node.target.name()}, an operator of its own that an exported folder does "
                "not bring along; use the composition of torch's operations in its place (docs/operators.md)"
            )


def write_graph(form: str, program: ExportedProgram | None, reference: Servable, path: Path) -> None:
    """Write a model in a format.

    Args:
        form: onnx, pt2, aoti or torchscript.
        program: The traced model; None for torchscript.
        reference: The model, for torchscript and the names of inputs and outputs.
        path: The file to write.

    Raises:
        UserError: The format can't express the model, or a package or compiler is missing.
    """
    with quiet_exporters(), torch.no_grad():
        if program is None:
            _write_torchscript(reference, path)
        elif form == "pt2":
            torch.export.save(program, path)
        elif form == "aoti":
            _write_aoti(program, path)
        else:
            _write_onnx(program, reference.serving, path)


def _write_aoti(program: ExportedProgram, path: Path) -> None:
    from torch._inductor import aoti_compile_and_package, config
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        with config.patch(freezing=True):  # or quantized layers are computed in float32
            aoti_compile_and_package(program, package_path=str(path))
    except InvalidCxxCompiler as error:
        raise UserError("export: --format aoti needs a C++ compiler; install g++, or choose another format") from error


def _write_onnx(program: ExportedProgram, serving: Serving, path: Path) -> None:
    try:
        onnx: Any = import_module("onnx")
        opset: Any = import_module("onnxscript").opset18
    except ModuleNotFoundError as error:
        raise UserError("export: --format onnx needs onnx and onnxscript; pip install '.[export]'") from error
    products: Any = {torch.ops.aten._int_mm.default: lambda left, right: opset.MatMulInteger(left, right)}
    try:
        graph = torch.onnx.export(
            program,
            dynamo=True,
            external_data=False,
            verbose=False,
            custom_translation_table=products,
            input_names=serving.names,
            output_names=[spec.name for spec in serving.outputs],
        )
    except torch.onnx.errors.OnnxExporterError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise UserError(f"export: ONNX can't express the model ({first_line(cause)}); choose --format pt2") from error
    assert graph is not None
    graph.save(path)

    proto = onnx.load(path)
    axes = [value.type.tensor_type.shape.dim for value in proto.graph.input]
    shapes = [[axis.dim_param or axis.dim_value for axis in of_input] for of_input in axes]
    check_axes(serving, shapes, lambda size: isinstance(size, str))
    onnx.checker.check_model(proto)


def _write_torchscript(reference: Servable, path: Path) -> None:
    from lightning.pytorch.core.module import _jit_is_scripting

    with warnings.catch_warnings(), _jit_is_scripting():  # Lightning's own way to hide its Trainer from TorchScript
        warnings.simplefilter("ignore")  # that all of it is deprecated
        script: Any
        try:
            script = torch.jit.script(reference)
        except Exception:  # of many kinds: TorchScript knows a part of Python only
            script = torch.jit.trace(reference, reference.serving.example(), check_trace=False)
        torch.jit.save(torch.jit.freeze(script.eval()), str(path))


@contextlib.contextmanager
def quiet_exporters() -> Iterator[None]:
    """Leave out progress and warnings that are for developers of the exporters, not about the model."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "torch.utils.cpp_extension")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _explain_refusal(error: Exception, module: nn.Module) -> str:
    constant = re.search(r"You marked (\w+) as dynamic but your code specialized it to be a constant", str(error))
    if constant is None:
        return f"export: torch.export can't trace the model ({first_line(error).rstrip('.')}); see docs/deploy.md"
    advice = "use x.shape[0] where it calls len(x), and no branch that depends on a size"
    for name, layer in module.named_modules():
        if isinstance(layer, nn.RNNBase) and constant[1] != BATCH:
            advice = f"it unrolls {name} ({type(layer).__name__}) step by step; choose --format torchscript"
    return f"export: the model makes the free size {constant[1]!r} a constant; {advice}"

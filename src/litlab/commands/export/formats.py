"""How the graph of each format is written."""

import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from litlab.commands.export.graph import check_axes
from litlab.commands.export.noise import quiet_exporters
from litlab.commands.export.operators import check_operators, operators_of, operators_of_script
from litlab.data.serving import Serving
from litlab.errors import UserError, first_line

# Largest difference from eager PyTorch, of a probability or in standard deviations of a column. The kernels are the
# same ones for pt2 and torchscript; the others order and fuse their sums differently.
TOLERANCE = {"onnx": 1e-4, "pt2": 1e-5, "aoti": 1e-4, "torchscript": 1e-5}
RUNTIME = {"onnx": "onnxruntime", "pt2": "torch", "aoti": "torch", "torchscript": "torch"}


def write_graph(form: str, program: ExportedProgram | None, module: nn.Module, serving: Serving, path: Path) -> str:
    """Write a model in a format.

    Args:
        form: onnx, pt2, aoti or torchscript.
        program: The traced model; None for torchscript.
        module: The model, for torchscript.
        serving: Its inputs and outputs.
        path: The file to write.

    Returns:
        How it was made, in a word.

    Raises:
        UserError: The format can't express the model, the model calls an operator of its own, or a package or compiler
            is missing.
    """
    with quiet_exporters(), torch.no_grad():
        if form == "torchscript":
            return _torchscript(module, serving, path)
        assert program is not None
        check_operators(operators_of(program))
        if form == "pt2":
            torch.export.save(program, path)
        elif form == "aoti":
            _aoti(program, path)
        else:
            _onnx(program, serving, path)
    return "traced by torch.export"


def _aoti(program: ExportedProgram, path: Path) -> None:
    from torch._inductor import aoti_compile_and_package, config
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        with config.patch(freezing=True):  # or quantized layers are computed in float32
            aoti_compile_and_package(program, package_path=str(path))
    except InvalidCxxCompiler as error:
        raise UserError("export: --format aoti needs a C++ compiler; install g++, or choose another format") from error


def _onnx(program: ExportedProgram, serving: Serving, path: Path) -> None:
    try:
        onnx: Any = import_module("onnx")
        opset: Any = import_module("onnxscript").opset18
    except ModuleNotFoundError as error:
        raise UserError("export: --format onnx needs onnx and onnxscript; pip install '.[export]'") from error
    more: Any = {torch.ops.aten._int_mm.default: lambda left, right: opset.MatMulInteger(left, right)}
    try:
        made = torch.onnx.export(
            program,
            dynamo=True,
            external_data=False,
            verbose=False,
            custom_translation_table=more,
            input_names=[spec.name for spec in serving.inputs],
            output_names=[spec.name for spec in serving.outputs],
        )
    except torch.onnx.errors.OnnxExporterError as error:
        raise UserError(f"export: ONNX can't express the model ({_innermost(error)}); choose --format pt2") from error
    assert made is not None
    made.save(path)
    proto = onnx.load(path)
    dims = [value.type.tensor_type.shape.dim for value in proto.graph.input]
    shapes = [[axis.dim_param or axis.dim_value for axis in axes] for axes in dims]
    check_axes(serving, shapes, lambda size: isinstance(size, str))
    _rename_axes(proto, serving)
    onnx.checker.check_model(proto)
    onnx.save(proto, path)


def _rename_axes(proto: Any, serving: Serving) -> None:
    """Give the free axes the names that the manifest says, such as ``batch``."""
    by_symbol = {}
    for spec, value in zip(serving.inputs, proto.graph.input, strict=True):
        for wanted, axis in zip(spec.shape, value.type.tensor_type.shape.dim, strict=True):
            if isinstance(wanted, str):
                by_symbol[axis.dim_param] = wanted
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param in by_symbol:
                axis.dim_param = by_symbol[axis.dim_param]


def _torchscript(module: nn.Module, serving: Serving, path: Path) -> str:
    from lightning.pytorch.core.module import _jit_is_scripting

    with warnings.catch_warnings(), _jit_is_scripting():  # Lightning's own way to hide its Trainer from TorchScript
        warnings.simplefilter("ignore")  # that all of it is deprecated: the report says so in one sentence
        script: Any
        try:
            script, how = torch.jit.script(module), "scripted"
        except Exception:  # of many kinds: TorchScript knows a part of Python only
            script, how = torch.jit.trace(module, serving.example(), check_trace=False), "traced"
        check_operators(operators_of_script(script))
        torch.jit.save(torch.jit.freeze(script.eval()), str(path))
    return how


def _innermost(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error).rstrip(".")

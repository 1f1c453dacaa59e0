"""What runs the graph of each format."""

import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from litlab.errors import UserError, first_line

OPERATORS = "torchao.quantization.pt2e"  # defines those of quantized graphs
Arrays = Sequence[np.ndarray]
Run = Callable[[Arrays], list[np.ndarray]]


def load_runtime(form: str, file: Path, inputs: Sequence[str], versions: dict[str, str], threads: int | None) -> Run:
    """Load a graph.

    Args:
        form: Its format.
        file: Its file.
        inputs: Names of its inputs, in order.
        versions: Versions of the packages that it was exported with.
        threads: Threads that compute; None for the runtime's choice. Those of torch are set for the whole process.

    Returns:
        A function from input to output arrays, both in the order of the manifest.

    Raises:
        UserError: The runtime is missing, or it can't load the file.
    """
    try:
        return _load_onnx(file, inputs, threads) if form == "onnx" else _load_torch(form, file, versions, threads)
    except ModuleNotFoundError as error:
        raise UserError(f"{file}: it needs {error.name}; pip install '.[export,torchao]'") from error
    except Exception as error:  # runtimes raise what they like for a file that they can't use
        raise UserError(f"{file}: it can't be loaded here ({first_line(error)}); export the run again") from error


def _load_onnx(file: Path, inputs: Sequence[str], threads: int | None) -> Run:
    runtime: Any = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors
    if threads is not None:
        options.intra_op_num_threads = threads
    session = runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda arrays: session.run(None, dict(zip(inputs, arrays, strict=True)))


def _load_torch(form: str, file: Path, versions: dict[str, str], threads: int | None) -> Run:
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    if "torchao" in versions:
        import_module(OPERATORS)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"`torch.jit.\w+` is deprecated")
        if form == "aoti":
            made, here = versions["torch"], torch.__version__
            if made.split(".")[:2] != here.split(".")[:2]:  # its code calls functions of that version
                raise RuntimeError(f"it was compiled for torch {made}, here is {here}")
            graph: Any = torch._inductor.aoti_load_package(str(file))  # the documented way
        elif form == "torchscript":
            graph = torch.jit.load(str(file)).eval()
        else:
            graph = torch.export.load(file).module()

    def run(arrays: Arrays) -> list[np.ndarray]:
        with torch.no_grad():
            return [tensor.numpy() for tensor in graph(*map(torch.from_numpy, arrays))]

    return run

"""An exported model: a folder with a graph, ``manifest.json`` with what is known of it, and what
runs it.
"""

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from litlab.errors import UserError, first_line
from litlab.util.checksums import find_damaged

MANIFEST, EXAMPLE, SCRIPT = "manifest.json", "example.npz", "use.py"
FILES = {
    "onnx": "model.onnx",
    "pt2": "model.pt2",
    "aoti": "model.aoti.pt2",
    "torchscript": "model.ts",
}
VERSION = 5  # of the folder
OPERATORS = "torchao.quantization.pt2e"  # defines those of quantized graphs
Arrays = Sequence[np.ndarray]
Run = Callable[[Arrays], list[np.ndarray]]


def is_exported(folder: str | Path) -> bool:
    """Return whether a folder holds an exported model. A run is never an export, whatever files are
    in it.
    """
    is_run = any(os.path.lexists(Path(folder, name)) for name in ("config.yaml", "status.json"))
    return Path(folder, MANIFEST).is_file() and not is_run


def read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    with suppress(ValueError, TypeError, KeyError):
        manifest = json.loads(path.read_bytes())
        if manifest["version"] == VERSION and manifest["format"] in FILES:
            return manifest
    raise UserError(
        f"{path}: it is damaged or from another version of litlab; export the run again"
    )


def take_arrays(module: Callable[..., Any]) -> Run:
    """Return what calls a module of torch with arrays, and gives arrays."""
    import torch

    def run(arrays: Arrays) -> list[np.ndarray]:
        with torch.inference_mode():
            return [tensor.numpy() for tensor in module(*map(torch.from_numpy, arrays))]

    return run


def compile_graph(program: Any, file: Path) -> None:
    """Write a graph of ``torch.export`` as ``aoti``, the code that `Artifact` loads."""
    import torch

    inductor: Any = torch._inductor  # where torch documents both ways
    with inductor.config.patch(freezing=True):  # or quantized layers are computed in float32
        inductor.aoti_compile_and_package(program, package_path=str(file))


def check_whole(folder: Path) -> None:
    """Refuse an export of which a file is missing or damaged."""
    damaged = find_damaged(folder)
    if damaged is not None:
        raise UserError(
            f"{folder / damaged}: it is damaged; copy the folder again, or export the run again"
        )


class Artifact:
    """The model in the folder of an export, on as many threads as torch has.

    ``manifest`` says what it takes and gives; ``run`` takes arrays in that order.
    """

    def __init__(self, folder: Path) -> None:
        self.manifest = read_manifest(folder)
        check_whole(folder)
        form = self.manifest["format"]
        file = folder / FILES[form]
        try:
            self.run: Run = (
                self._load_onnx(file) if form == "onnx" else self._load_torch(form, file)
            )
        except Exception as error:  # runtimes raise what they like for a file that they can't use
            advice = "pip install -e '.[export,torchao]', or export the run again"
            raise UserError(
                f"{file}: it can't be loaded here ({first_line(error)}); {advice}"
            ) from error

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model on arrays by the names, and with the types and shapes, that the manifest
        says.
        """
        outputs = self.run([inputs[entry["name"]] for entry in self.manifest["inputs"]])
        return {
            entry["name"]: output
            for entry, output in zip(self.manifest["outputs"], outputs, strict=True)
        }

    def _load_onnx(self, file: Path) -> Run:
        import torch

        runtime: Any = import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.log_severity_level = 3  # errors
        options.intra_op_num_threads = torch.get_num_threads()
        session = runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        names = [entry["name"] for entry in self.manifest["inputs"]]
        return lambda arrays: session.run(None, dict(zip(names, arrays, strict=True)))

    def _load_torch(self, form: str, file: Path) -> Run:
        import torch

        versions = self.manifest["versions"]
        if "torchao" in versions:
            import_module(OPERATORS)
        graph: Any
        if form == "aoti":
            # Its code calls that version
            if versions["torch"].split(".")[:2] != torch.__version__.split(".")[:2]:
                raise RuntimeError(
                    f"it was compiled for torch {versions['torch']}, here is {torch.__version__}"
                )
            graph = torch._inductor.aoti_load_package(str(file))  # the documented way
        elif form == "torchscript":
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=r"`torch.jit.\w+` is deprecated")
                graph = torch.jit.load(str(file)).eval()
        else:
            graph = torch.export.load(file).module()
        return take_arrays(graph)

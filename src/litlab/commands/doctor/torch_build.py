"""Whether torch can be imported, and what is built for it."""

import importlib.util
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from litlab.commands.doctor.line import FAILED, OK, PYTHON, TORCH, Line, described
from litlab.commands.doctor.packages import install

REINSTALL = "pip install --force-reinstall torch torchvision"


def torch_build() -> Iterator[Line]:
    """Import torch, hand an array to NumPy, and call an operator of torchvision."""
    try:
        import torch
    except Exception as error:  # ImportError, OSError for a library, anything where a file hides the package
        what = f"it can't be imported: {described(error)}"
        missing = isinstance(error, ModuleNotFoundError) and error.name == TORCH
        yield Line(PYTHON, TORCH, FAILED, what, install() if missing else _shadow() or REINSTALL, {"version": None})
        return
    built = built_for()
    facts = {"version": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip}
    yield Line(PYTHON, TORCH, OK, f"{torch.__version__}, built for {built}", facts=facts)
    try:
        torch.zeros(1).numpy()
    except Exception as error:
        yield Line(
            PYTHON, "numpy", FAILED, f"torch can't use it: {described(error)}", "pip install --upgrade numpy torch"
        )
    try:
        version = metadata.version("torchvision")
    except metadata.PackageNotFoundError:  # if the project needs it, the line on packages says that it is missing
        return
    facts = {"version": version}
    try:
        import torchvision.ops

        torchvision.ops.nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.ones(1), 0.5)
    except Exception as error:
        what = f"{version} does not work with this torch: {described(error)}"
        yield Line(PYTHON, "torchvision", FAILED, what, f"{REINSTALL}, both from the same index", facts)
        return
    yield Line(PYTHON, "torchvision", OK, f"{version}, and its operators fit this torch", facts=facts)


def built_for() -> str:
    """Return what the installed torch computes on."""
    import torch

    if torch.version.cuda:
        return f"CUDA {torch.version.cuda}"
    if torch.version.hip:
        return f"ROCm {torch.version.hip}"
    return "Apple GPUs (MPS) and CPUs" if torch.backends.mps.is_built() else "CPUs only"


def _shadow() -> str:
    """Return what to do about a file or folder that hides the installed torch; empty where there is none."""
    spec = importlib.util.find_spec(TORCH)
    if spec is None or spec.origin is None:
        return ""
    try:
        own = Path(str(metadata.distribution(TORCH).locate_file("torch/__init__.py")))
    except metadata.PackageNotFoundError:
        return ""
    return "" if Path(spec.origin).resolve() == own.resolve() else f"rename {spec.origin}: it hides the installed torch"

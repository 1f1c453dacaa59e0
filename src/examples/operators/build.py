"""Builds the kernels of ``csrc/`` with `torch.utils.cpp_extension` when they are first used, and
loads them.
"""

import functools
import logging
from pathlib import Path

import torch

SOURCES = Path(__file__).parent / "csrc"
SUFFIXES = {"cpu": "cpp", "cuda": "cu"}
# What torch 2.10 can load. The two flags about mathematics change no result: they let go of errno
# and of floating-point exceptions, which nobody reads, so that compilers can work on several
# numbers at once.
COMMON = ["-O3", "-DTORCH_TARGET_VERSION=0x020a000000000000"]
OF_CPU = ["-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"]


def build(name: str, device: str = "cpu") -> None:
    """Build the kernels of an operator for a type of device, unless that is done already, and load
    them.

    torch keeps them in ``TORCH_EXTENSIONS_DIR``, ``~/.cache/torch_extensions`` by default, and
    builds them again when the source, a header or a flag changes.

    Args:
        name: ``csrc/NAME.cpp`` and ``csrc/NAME.cu`` are its sources.
        device: cpu or cuda. The kernels for cuda need those for cpu, which bring the schema.

    Raises:
        OSError: If there is no kernel for the device, no CUDA, or a file can't be read or written.
        RuntimeError: If ninja is missing or the compiler fails, with all that it says.
    """
    source = SOURCES / f"{name}.{SUFFIXES.get(device, device)}"
    if not source.is_file():
        raise FileNotFoundError(f"there is no kernel for {device}")

    # Imported here, as it is slow and looks for CUDA, of which it warns where there is none.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    from torch.utils import cpp_extension

    # The instructions that torch itself uses on this machine.
    wide = ["-mavx2", "-mfma"] if torch.backends.cpu.get_cpu_capability().startswith("AVX") else []
    # A copy of this folder in another package has a library of its own
    package = __name__.partition(".")[0]
    cpp_extension.load(
        f"{package}_{name}_{device}",
        str(source),
        extra_cflags=[*COMMON, *OF_CPU, *wide],
        extra_cuda_cflags=[*COMMON, "-DUSE_CUDA"],
        is_python_module=False,
    )


@functools.cache
def load(name: str, device: str = "cpu") -> bool:
    """Return whether the kernels of an operator could be loaded, as `build` does; if not, one line
    says why, once.
    """
    try:
        build(name, device)
    except (OSError, RuntimeError) as error:
        from lightning.pytorch.utilities import rank_zero_info  # slow to import, seldom needed

        lines = str(error).splitlines()
        reason = next((line for line in lines if "error:" in line or "not found" in line), lines[0])
        rank_zero_info(
            f"{name}: {reason.strip()}; plain PyTorch computes the same instead, more slowly"
        )
        return False
    return True

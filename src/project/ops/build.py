"""Builds the C++ operators of ``csrc/`` when they are first used, and loads them.

python -m project.ops.build    builds all of them now, and prints their files, or the errors of the compiler
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import torch

SOURCES = Path(__file__).parent / "csrc"
SUFFIXES = {"cpu": ".cpp", "cuda": ".cu"}
VARIABLE = "TORCH_EXTENSIONS_DIR"  # where torch's own extensions go, too
SILENT_SECONDS = 2.0
# The library loads in torch 2.10 and later. Neither of the two about mathematics changes a result: they let go of errno
# and of floating-point exceptions, which nobody reads, so that compilers can work on several numbers at once.
COMMON = ["-std=c++17", "-O3", "-shared", "-DTORCH_TARGET_VERSION=0x020a000000000000"]
OF_CPU = ["-fPIC", "-fvisibility=hidden", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math"]
OF_CUDA = ["-Xcompiler", "-fPIC,-fvisibility=hidden", "-DUSE_CUDA", "--expt-relaxed-constexpr"]


class NotBuilt(Exception):
    """Why there is no library; ``output`` is what the compiler said."""

    def __init__(self, reason: str, output: str = "") -> None:
        super().__init__(reason)
        self.output = output


@functools.cache
def load(name: str, device: str = "cpu") -> bool:
    """Load the kernels of an operator for a type of device; build them first if need be.

    If that does not work, one line says why, once.

    Args:
        name: ``csrc/NAME.cpp`` and ``csrc/NAME.cu`` are its sources.
        device: cpu or cuda. The kernels for cuda need those for cpu, which bring the schema.

    Returns:
        Whether the kernels are there.
    """
    try:
        torch.ops.load_library(build(name, device))
    except (NotBuilt, OSError) as error:
        _say(f"{name}: {error}; plain PyTorch computes the same instead, more slowly")
        return False
    return True


def build(name: str, device: str = "cpu") -> Path:
    """Return the library with the kernels of an operator for a type of device; build it unless it is there.

    It is kept in a folder that is its user's alone, because it is executed. Its name has a hash of the sources, torch's
    version, the compiler and its flags. Processes that start at once build it once, and find it whole.

    Args:
        name: As of `load`.
        device: As of `load`.

    Returns:
        A file for ``torch.ops.load_library``.

    Raises:
        NotBuilt: If there is no compiler, it fails, or the folder can't be used.
    """
    source = SOURCES / f"{name}{SUFFIXES.get(device)}"
    if not source.is_file():
        raise NotBuilt(f"there is no kernel for {device}")
    command = _command_for_cpu() if device == "cpu" else _command_for_cuda()
    compiler = Path(command[0]).resolve()
    parts = [*command, torch.__version__, platform.machine(), compiler, compiler.stat().st_mtime_ns]
    digest = hashlib.sha256(repr([str(part) for part in parts]).encode())
    for file in sorted([source, *SOURCES.glob("*.h")]):
        digest.update(file.read_bytes())
    try:
        library = _folder() / f"{name}-{device}-{digest.hexdigest()[:16]}.so"
        if not library.is_file():
            _compile(command, source, library)
    except OSError as error:
        reason = f"the library can't be written ({error.strerror}: {error.filename})"
        raise NotBuilt(f"{reason}; set {VARIABLE} to another folder") from error
    return library


def _compile(command: list[str], source: Path, library: Path) -> None:
    folder, root = library.parent, Path(torch.__file__).parent
    with (folder / ".lock").open("ab") as lock, tempfile.TemporaryDirectory(dir=folder) as temporary:
        with contextlib.suppress(OSError):  # a network file system without locks: each process builds for itself
            fcntl.flock(lock, fcntl.LOCK_EX)
        if library.is_file():
            return
        made = Path(temporary) / library.name
        libraries = ["-ltorch_cpu", "-lc10", *(["-ltorch_cuda"] if source.suffix == SUFFIXES["cuda"] else [])]
        places = [f"-I{root / 'include'}", str(source), "-o", str(made), f"-L{root / 'lib'}", *libraries]
        notice = threading.Timer(SILENT_SECONDS, _say, [f"Building {source.name}; later runs find it built."])
        notice.start()
        try:
            done = subprocess.run([*command, *places], capture_output=True, text=True, check=False)
        finally:
            notice.cancel()
        if done.returncode != 0:
            output = done.stderr + done.stdout
            first = next((line for line in output.splitlines() if "error" in line), f"exit code {done.returncode}")
            raise NotBuilt(f"{source.name} does not compile ({first.strip()}; python -m project.ops.build)", output)
        made.replace(library)


def _folder() -> Path:
    """Return the folder of the libraries, made where it is missing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torch_extensions"
    folder = Path(os.environ.get(VARIABLE) or cache).absolute() / "project_ops"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise NotBuilt(f"{folder} holds code that is run, and others can write to it; remove it or set {VARIABLE}")
    return folder


def _command_for_cpu() -> list[str]:
    """Return the compiler and its flags, for the instructions that torch itself uses on this machine."""
    compilers = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    found = next((words for words in map(shlex.split, compilers) if shutil.which(words[0])), None)
    if found is None:
        raise NotBuilt(f"no C++ compiler is installed ({', '.join(compilers)})")
    wide = ["-mavx2", "-mfma"] if torch.backends.cpu.get_cpu_capability().startswith("AVX") else []
    return [str(shutil.which(found[0])), *found[1:], *COMMON, *OF_CPU, *wide]


def _command_for_cuda() -> list[str]:
    """Return nvcc and its flags, for the oldest of the GPUs; newer ones translate what is built for it."""
    home = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    nvcc, version = shutil.which("nvcc") or shutil.which(f"{home}/bin/nvcc"), torch.version.cuda
    if nvcc is None or version is None:
        raise NotBuilt("nvcc, CUDA's compiler, is not installed" if version else "torch is built without CUDA")
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout
    if f"release {version.partition('.')[0]}." not in said:  # within one number they work together
        raise NotBuilt(f"nvcc is not that of CUDA {version}, which torch is built with")
    gpus = [torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count())]
    major, minor = min(gpus, default=(8, 0))
    return [nvcc, *COMMON, *OF_CUDA, f"-arch=sm_{major}{minor}"]


def _say(text: str) -> None:
    from lightning.pytorch.utilities import rank_zero_info  # slow to import, seldom needed

    rank_zero_info(text)


def main(arguments: Sequence[str] = ()) -> int:
    """Build the operators with these names, or all; return the exit code, 1 if the kernel for CPUs of one is missing.

    Kernels for GPUs are built where CUDA's compiler is, whether there is a GPU or not.
    """
    code = 0
    for name in arguments or sorted(path.stem for path in SOURCES.glob("*.cpp")):
        for device in [device for device, suffix in SUFFIXES.items() if (SOURCES / f"{name}{suffix}").is_file()]:
            start = time.perf_counter()
            try:
                print(f"{build(name, device)} ({time.perf_counter() - start:.1f} s)")
            except NotBuilt as error:
                print(f"{error.output}{name} for {device}: {error}", file=sys.stderr)
                code = max(code, int(device == "cpu"))
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

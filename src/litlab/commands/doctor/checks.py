"""What is installed, and what a container or a cluster leaves to this process: cores, memory, disk.

Packages are imported by the checks that use them: any of them may be missing or broken.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory

from litlab.errors import first_line
from litlab.runs.folder import ROOT as RUNS
from litlab.util.limits import count_cores, find_memory
from litlab.util.team import package, package_folder
from litlab.util.text import plural

OK, WARN, FAIL = "ok", "warn", "FAIL"
GIB = 2**30

Line = tuple[str, str]  # status; what there is, and after a semicolon what to do
Check = Callable[[], Iterator[Line]]

# Tensors go through it from loader workers to the training; NCCL uses it, too
SHARED = Path("/dev/shm")
DATA = Path("data")
ENOUGH = 2 * GIB  # the reference experiments need less

# What torch.compile includes: the headers of Python, which are a package of their own on some
# systems, and of C++.
SOURCE = """\
#include <Python.h>
#include <vector>
extern "C" int size() { return static_cast<int>(std::vector<int>{1}.size()); }
"""


def judge(is_fine: bool, text: str, remedy: str, otherwise: str = WARN) -> Line:
    """Return a line on what there is, with what to do where it is not fine."""
    return (OK, text) if is_fine else (otherwise, f"{text}; {remedy}")


def check_python() -> Iterator[Line]:
    from packaging.specifiers import SpecifierSet

    version = platform.python_version()
    needed, _ = read_requirements()
    is_fine = SpecifierSet(needed).contains(version, prereleases=True)
    remedy = f"the project needs {needed}: make a new environment with it"
    yield judge(is_fine, f"{version} in {sys.prefix}", remedy, FAIL)


def check_packages() -> Iterator[Line]:
    """Compare the installed versions with what the project needs; ``pip check`` looks at what these
    need themselves.
    """
    from packaging.requirements import Requirement

    fitting = 0
    needed = [Requirement(text) for text in read_requirements()[1]]
    needed = [item for item in needed if item.marker is None or item.marker.evaluate({"extra": ""})]
    for requirement in needed:
        name, versions = requirement.name, requirement.specifier
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            version = "missing"
        if version != "missing" and versions.contains(version, prereleases=True):
            fitting += 1
        else:
            text = f"{name} is {version}, and the project needs {name}{versions}"
            yield FAIL, f"{text}; pip install '{name}{versions}'"
    if fitting == len(needed):
        yield OK, f"the {fitting} that the project needs are there"


def read_requirements() -> tuple[str, list[str]]:
    """Return the versions of Python and the packages that the project needs, by the pyproject.toml
    of a checkout.

    The installed metadata stays as it was when a newer one is pulled.
    """
    for folder in package_folder().resolve().parents[:2]:  # of src/PACKAGE/ or of PACKAGE/
        file = folder / "pyproject.toml"
        if file.is_file():
            project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
            return project["requires-python"], project["dependencies"]
    distribution = metadata.distribution(package())
    return "".join(
        distribution.metadata.get_all("Requires-Python", [])
    ), distribution.requires or []


def check_torch() -> Iterator[Line]:
    """Hand an array to NumPy, and call an operator of torchvision: builds that don't fit each other
    fail here.
    """
    import torch
    import torchvision

    torch.zeros(1).numpy()
    torchvision.ops.nms(torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.ones(1), 0.5)
    yield (
        OK,
        f"{torch.__version__}, built for {describe_build()}; torchvision {torchvision.__version__} "
        "fits it",
    )


def describe_build() -> str:
    import torch

    if torch.version.cuda:
        return f"CUDA {torch.version.cuda}"
    if torch.version.hip:
        return f"ROCm {torch.version.hip}"
    return "Apple's GPUs and CPUs" if torch.backends.mps.is_built() else "CPUs only"


def check_devices() -> Iterator[Line]:
    if "torch" not in sys.modules:  # the line before says why
        return
    import torch

    # The CPU, then each GPU with some work, then why there is none
    cores, threads = count_cores(), torch.get_num_threads()
    remedy = f"export OMP_NUM_THREADS={max(1, int(cores))}"
    yield judge(
        threads <= max(1, cores), f"CPU, {plural(threads, 'thread')} on {cores:g} cores", remedy
    )

    for number in range(torch.cuda.device_count()):
        device = torch.device("cuda", number)
        torch.ones(256, 256, device=device).matmul(torch.ones(256, device=device)).sum().item()
        free, total = torch.cuda.mem_get_info(device)
        text = (
            f"{torch.cuda.get_device_name(device)}, {free / GIB:.1f} of {total / GIB:.1f} GiB free"
        )
        yield judge(free > total / 2, text, "nvidia-smi lists the programs that use it")

    if torch.backends.mps.is_available():
        yield OK, f"Apple GPU, {torch.mps.recommended_max_memory() / GIB:.1f} GiB"
    elif not torch.cuda.is_available():
        yield explain_no_gpu()


def explain_no_gpu() -> Line:
    import torch

    command = shutil.which("nvidia-smi")
    if command is None:
        return OK, "no GPU, or no driver for one: fits run on the CPU"
    query = [command, "--query-gpu=name", "--format=csv,noheader"]
    smi = subprocess.run(query, capture_output=True, text=True, timeout=15, check=False)
    names = ", ".join(smi.stdout.splitlines())

    # From the driver to torch, what fails first
    if smi.returncode != 0:
        return (
            FAIL,
            f"nvidia-smi says: {names or smi.stderr.strip()}; restart the machine, or docker run "
            "--gpus all",
        )
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return WARN, f"{names}, hidden by CUDA_VISIBLE_DEVICES; unset CUDA_VISIBLE_DEVICES"
    if not torch.version.cuda:
        remedy = (
            "pip install --force-reinstall torch torchvision, with the index that pytorch.org "
            "names for CUDA"
        )
        return FAIL, f"{names}, and torch is built for {describe_build()}; {remedy}"
    try:
        torch.cuda.init()
        reason = "it finds none"
    except (RuntimeError, AssertionError) as error:
        reason = first_line(error)
    return (
        FAIL,
        f"{names}, which torch can't use ({reason}); update the driver, or install a torch for an "
        "older CUDA",
    )


def check_compiler() -> Iterator[Line]:
    default = "clang++" if sys.platform == "darwin" else "g++"
    command = shlex.split(os.environ.get("CXX", default))
    without = "torch.compile and operators in C++ do not work without it"
    remedy = (
        "xcode-select --install"
        if sys.platform == "darwin"
        else "apt-get install g++ python3-dev, or set CXX"
    )
    if shutil.which(command[0]) is None:
        yield WARN, f"there is no {command[0]}, and {without}; {remedy}"
        return

    with TemporaryDirectory() as folder:
        source = Path(folder) / "size.cpp"
        source.write_text(SOURCE)
        include = f"-I{sysconfig.get_paths()['include']}"
        words = [*command, "-std=c++17", include, "-c", str(source), "-o", f"{source}.o"]
        compilation = subprocess.run(
            words, capture_output=True, text=True, errors="replace", check=False
        )
    if compilation.returncode == 0:
        yield OK, f"{command[0]} compiles"
    else:
        errors = [line for line in compilation.stderr.splitlines() if "error" in line]
        yield WARN, f"{command[0]} can't compile ({''.join(errors[:1])}), and {without}; {remedy}"


def check_memory() -> Iterator[Line]:
    total, free = find_memory()
    text = f"{free / GIB:.1f} of {total / GIB:.1f} GiB free"
    remedy = "end other programs, or raise the container's limit (docker run --memory)"
    yield judge(free >= ENOUGH, text, remedy)


def check_shared_memory() -> Iterator[Line]:
    if not SHARED.is_dir():  # only Linux has it
        return
    free = shutil.disk_usage(SHARED).free
    remedy = (
        "loader workers and NCCL may end with a bus error: docker run --shm-size 8g, or --ipc host"
    )
    yield judge(free >= GIB, f"{free / GIB:.1f} GiB free", remedy)


def check_disk() -> Iterator[Line]:
    """Write a little where data, runs and compiled code go, or where their folders would be
    made.
    """
    for folder in (DATA, RUNS, Path(tempfile.gettempdir())):
        parents = [parent for parent in (folder, *folder.absolute().parents) if parent.exists()]
        with tempfile.TemporaryFile(dir=parents[0], buffering=0) as stream:
            stream.write(bytes(2**16))
        free = shutil.disk_usage(parents[0]).free
        text = f"{free / GIB:.1f} GiB free for {folder}"
        yield judge(free >= ENOUGH, text, "make room, data sets and checkpoints need more")

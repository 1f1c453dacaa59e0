"""What torch can compute on, and how fast. Nothing else may run meanwhile."""

import os
import platform
import sys
from collections.abc import Iterator
from typing import Any

import torch

from litlab.commands.doctor.cgroups import core_quota
from litlab.commands.doctor.gpus import Gpus, cuda_of_driver, find_gpus
from litlab.commands.doctor.line import DEVICES, FAILED, MACHINE, NOTE, OK, TOOLS, WARNING, Line, described, gib
from litlab.commands.doctor.machine import usable_cores
from litlab.commands.doctor.rates import copy_rate, matmul_rates
from litlab.commands.doctor.torch_build import built_for
from litlab.errors import first_line
from litlab.util.device import has_fast_bfloat16, is_out_of_memory

REPLACE = "pip install --force-reinstall torch torchvision, with the index that pytorch.org names for CUDA"


def devices() -> Iterator[Line]:
    """Look at the threads, then measure the CPU and each GPU that torch can use."""
    yield threads(core_quota())
    yield cpu()
    if not torch.cuda.is_available() and (line := unused(find_gpus())):
        yield line
    for number in range(torch.cuda.device_count()):
        yield gpu(number)
    if torch.cuda.is_available() and sys.platform == "linux":
        yield triton()
    if sys.platform == "darwin" and platform.machine() == "arm64":
        yield apple_gpu()


def threads(quota: float | None) -> Line:
    """Compare torch's threads on the CPU with the cores.

    Args:
        quota: As of `usable_cores`.
    """
    count, usable = torch.get_num_threads(), usable_cores(quota)
    variable = os.environ.get("OMP_NUM_THREADS")
    facts = {"threads": count, "OMP_NUM_THREADS": variable}
    fitting = max(1, int(usable))
    if count > max(1, usable):
        what = f"torch computes with {count} on {usable:g} cores, where they wait for each other"
        return Line(MACHINE, "threads", WARNING, what, f"export OMP_NUM_THREADS={fitting}", facts)
    if variable is not None and count <= usable / 2:
        what = f"torch computes with {count} on {usable:g} cores, as OMP_NUM_THREADS is {variable}"
        return Line(MACHINE, "threads", WARNING, what, f"unset OMP_NUM_THREADS, or fit --threads {fitting}", facts)
    what = f"torch computes with {count}{'' if variable is None else f' (OMP_NUM_THREADS is {variable})'}"
    return Line(MACHINE, "threads", OK, what, facts=facts)


def cpu() -> Line:
    """Measure the CPU."""
    device = torch.device("cpu")
    units = "" if has_fast_bfloat16(device) else ", no units for bfloat16"
    kind = f"{platform.machine()}, {torch.backends.cpu.get_cpu_capability()}{units}"
    return _measured("CPU", device, kind, {"name": kind})


def gpu(number: int) -> Line:
    """Measure a GPU of NVIDIA or AMD.

    Args:
        number: Its number in torch.
    """
    device, name = torch.device("cuda", number), f"cuda:{number}"
    try:
        kind = torch.cuda.get_device_name(device)
        free, total = torch.cuda.mem_get_info(device)
    except (RuntimeError, AssertionError) as error:
        return Line(DEVICES, name, FAILED, f"torch can't use it: {described(error)}", "restart the machine")
    facts = {"name": kind, "total_gib": gib(total), "free_gib": gib(free)}
    what = f"{kind}, {gib(free)} of {gib(total)} GiB free"
    line = _measured(name, device, what, facts)
    if line.status == OK and free < total / 2:
        remedy = "nvidia-smi lists the programs that use it; CUDA_VISIBLE_DEVICES chooses another GPU"
        return Line(DEVICES, name, WARNING, line.what, remedy, line.facts)
    return line


def apple_gpu() -> Line:
    """Measure the GPU of an Apple computer."""
    if not torch.backends.mps.is_available():
        why = "needs a newer macOS" if torch.backends.mps.is_built() else "is not for Apple's GPUs"
        return Line(
            DEVICES, "mps", FAILED, f"this torch {why}", "pip install --upgrade torch torchvision; update macOS"
        )
    total = torch.mps.recommended_max_memory()
    facts = {"name": "Apple GPU", "total_gib": gib(total), "free_gib": None}
    return _measured("mps", torch.device("mps"), f"Apple GPU, {gib(total)} GiB", facts)


def _measured(name: str, device: torch.device, what: str, facts: dict[str, Any]) -> Line:
    """Return the line of a device, with its rates."""
    try:
        rates, copies = matmul_rates(device), copy_rate(device)
    except Exception as error:  # kernels are missing for this GPU, its memory is full, an instruction is unknown
        remedy = "install a torch that is built for it: pytorch.org/get-started"
        if is_out_of_memory(error):
            remedy = "end the programs that use its memory"
        return Line(DEVICES, name, FAILED, f"{what}; it can't compute: {described(error)}", remedy, facts)
    unit, scale = ("TFLOP/s", 1000) if max(rates.values()) >= 1000 else ("GFLOP/s", 1)
    shown = ", ".join(f"{precision} {rate / scale:.3g}" for precision, rate in rates.items())
    copied = "copies" if device.type == "cpu" else "copies from the host"
    facts = {**facts, "gflops": rates, "copy_gb_s": copies}
    return Line(DEVICES, name, OK, f"{what}; matmul {shown} {unit}; {copied} {copies:.3g} GB/s", facts=facts)


def unused(found: Gpus) -> Line | None:
    """Say why torch uses none of the GPUs; None where there are none, or the driver is at fault.

    Args:
        found: What the system knows of GPUs.
    """
    name, built, hidden = "torch and GPU", built_for(), os.environ.get("CUDA_VISIBLE_DEVICES")
    if found.vendor == "AMD":
        if not torch.version.hip:
            return Line(DEVICES, name, NOTE, f"this torch is built for {built}, not for AMD's GPUs")
        remedy = "join the groups render and video; docker run --device /dev/kfd --device /dev/dri"
        return Line(DEVICES, name, FAILED, f"torch, built for {built}, finds no GPU", remedy)
    if found.driver is None:
        return None
    if hidden is not None and hidden.strip() in ("", "-1"):
        what = f"CUDA_VISIBLE_DEVICES is {hidden!r}, which hides the GPUs"
        return Line(DEVICES, name, WARNING, what, "unset CUDA_VISIBLE_DEVICES")
    newest = cuda_of_driver()
    if not torch.version.cuda:
        what, remedy = f"this torch is built for {built}", REPLACE
    elif newest and newest[0] < int(torch.version.cuda.partition(".")[0]):
        what = f"this torch is built for {built}, and driver {found.driver} for CUDA up to {newest[0]}.{newest[1]}"
        remedy = f"update the driver, or {REPLACE} {newest[0]}"
    else:
        what, remedy = f"torch can't use them: {_reason()}", "docker run --gpus all, or restart the machine"
    return Line(DEVICES, name, FAILED, what, remedy)


def _reason() -> str:
    """Return what torch says when it is to use a GPU."""
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return first_line(error)
    return "it finds none"


def triton() -> Line:
    """Import Triton, with which torch.compile writes kernels for GPUs."""
    try:
        import triton
    except Exception as error:
        what = f"it can't be imported, and torch.compile needs it on GPUs: {described(error)}"
        return Line(TOOLS, "triton", WARNING, what, "pip install --force-reinstall torch")
    return Line(TOOLS, "triton", OK, triton.__version__, facts={"version": triton.__version__})

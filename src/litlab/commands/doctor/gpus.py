"""The GPUs that the system knows of, whether torch can use them or not."""

import ctypes
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from litlab.commands.doctor.line import DEVICES, FAILED, NOTE, OK, Line

PCI = Path("/sys/bus/pci/devices")
NVIDIA_MODULE = Path("/proc/driver/nvidia")
AMD_DRIVER = Path("/dev/kfd")
VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD"}
CLASSES = ("0x03", "0x12")  # how the class of displays and of accelerators begins
SECONDS = 15  # that nvidia-smi may take


@dataclass(frozen=True)
class Gpus:
    """What the system knows.

    Attributes:
        vendor: NVIDIA or AMD; None where there is no GPU.
        names: Of the GPUs; where no driver tells them, their vendor and place on the bus.
        driver: Version of NVIDIA's driver; None where it does not answer.
        trouble: Why it does not answer; empty where it does.
    """

    vendor: str | None = None
    names: tuple[str, ...] = ()
    driver: str | None = None
    trouble: str = ""

    def __str__(self) -> str:
        """Say how many there are, and which."""
        return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in Counter(self.names).items())


def find_gpus(pci: Path = PCI, module: Path = NVIDIA_MODULE) -> Gpus:
    """Ask NVIDIA's driver, then look at the bus.

    Args:
        pci: Folder of the devices on the bus.
        module: Folder of NVIDIA's kernel module.
    """
    on_bus = _on_bus(pci)
    trouble = "the driver is not installed, or not within this container"
    if command := shutil.which("nvidia-smi"):
        query = [command, "--query-gpu=name,driver_version", "--format=csv,noheader"]
        try:
            done = subprocess.run(query, capture_output=True, text=True, errors="replace", timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            trouble = f"nvidia-smi does not answer in {SECONDS} s"
        else:
            rows = [line.rpartition(", ") for line in done.stdout.splitlines() if ", " in line]
            if done.returncode == 0 and rows:
                return Gpus("NVIDIA", tuple(name for name, _, _ in rows), rows[0][2])
            trouble = next(iter((done.stdout + done.stderr).strip().splitlines()), "nvidia-smi fails")
    elif version := re.search(r"\d+\.\d+[.\d]*", _read(module / "version")):
        models = [re.search(r"Model:\s*(.*)", _read(file)) for file in sorted(module.glob("gpus/*/information"))]
        if names := [model[1] for model in models if model]:
            return Gpus("NVIDIA", tuple(names), version[0])
    if "NVIDIA" in on_bus:
        return Gpus("NVIDIA", tuple(on_bus["NVIDIA"]), trouble=trouble)
    return Gpus("AMD", tuple(on_bus["AMD"])) if "AMD" in on_bus else Gpus()


def cuda_of_driver() -> tuple[int, int] | None:
    """Return the newest CUDA that NVIDIA's driver supports, such as (12, 4); None where there is no driver."""
    version = ctypes.c_int()
    try:
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)) != 0:
            return None
    except OSError:
        return None
    return version.value // 1000, version.value % 1000 // 10


def gpus() -> Iterator[Line]:
    """Look at the GPUs and their driver, without torch."""
    found, cuda = find_gpus(), cuda_of_driver()
    supports = None if cuda is None else f"{cuda[0]}.{cuda[1]}"
    facts = {"vendor": found.vendor, "names": list(found.names), "driver": found.driver, "cuda": supports}
    if found.vendor is None:
        yield Line(DEVICES, "GPU", NOTE, "none found", facts=facts)
    elif found.vendor == "AMD":
        works = os.access(AMD_DRIVER, os.R_OK | os.W_OK)
        what = f"{found}; its driver for computing ({AMD_DRIVER}) is {'there' if works else 'not there, or not yours'}"
        yield Line(DEVICES, "GPU", OK if works else NOTE, what, facts=facts)
    elif found.driver is None:
        remedy = "install NVIDIA's driver, restart after an update of it, or start the container with --gpus all"
        yield Line(DEVICES, "GPU", FAILED, f"{found}, but {found.trouble}", remedy, facts)
    else:
        what = f"{found}, driver {found.driver}{f' for CUDA up to {supports}' if supports else ''}"
        yield Line(DEVICES, "GPU", OK, what, facts=facts)


def _on_bus(pci: Path) -> dict[str, list[str]]:
    """Return the GPUs on the bus, by vendor."""
    found: dict[str, list[str]] = {}
    for device in sorted(pci.iterdir()) if pci.is_dir() else []:
        vendor, kind = (_read(device / name) for name in ("vendor", "class"))
        if vendor in VENDORS and kind.startswith(CLASSES):
            found.setdefault(VENDORS[vendor], []).append(f"{VENDORS[vendor]} at {device.name}")
    return found


def _read(file: Path) -> str:
    return file.read_text().strip() if file.is_file() else ""

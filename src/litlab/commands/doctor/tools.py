"""What torch.compile and operators in C++ need."""

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

from litlab.commands.doctor.line import NOTE, OK, TOOLS, WARNING, Line

# What torch.compile includes: the headers of Python, which are a package of their own on some systems, and of C++.
SOURCE = """\
#include <Python.h>
#include <vector>
extern "C" int one() { return static_cast<int>(std::vector<int>{1}.size()); }
"""
INSTALL = {"linux": "apt-get install g++ python3-dev (or conda install gxx)", "darwin": "xcode-select --install"}


def tools() -> Iterator[Line]:
    """Look at the C++ compiler and at ninja."""
    yield compiler()
    found = shutil.which("ninja")
    if found or importlib.util.find_spec("ninja"):
        yield Line(TOOLS, "ninja", OK, found or "installed as a package", facts={"path": found})
    else:
        what = "not installed; only torch.utils.cpp_extension needs it"
        yield Line(TOOLS, "ninja", NOTE, what, "pip install ninja", {"path": None})


def compiler() -> Line:
    """Compile a few lines with the compiler that torch.compile takes."""
    wanted = shlex.split(os.environ.get("CXX", "")) or ["clang++" if sys.platform == "darwin" else "g++"]
    name, path = "C++ compiler", shutil.which(wanted[0])
    remedy = INSTALL.get(sys.platform, "install g++")
    facts = {"command": wanted, "path": path, "works": False}
    without = "torch.compile and operators in C++ do not work"
    if path is None:
        others = [other for other in ("c++", "g++", "clang++") if shutil.which(other)]
        remedy = f"export CXX={others[0]}" if others else remedy
        return Line(TOOLS, name, WARNING, f"there is no {wanted[0]}: {without}", remedy, facts)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "one.cpp"
        source.write_text(SOURCE)
        includes = f"-I{sysconfig.get_paths()['include']}"
        words = [*wanted, "-std=c++17", "-shared", "-fPIC", includes, str(source), "-o", str(source.with_suffix(".so"))]
        words += ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-fopenmp"]
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        said = (done.stderr + done.stdout).splitlines()
        first = next((line for line in said if "error" in line), f"exit code {done.returncode}")
        return Line(TOOLS, name, WARNING, f"{path} can't compile ({first.strip()}): {without}", remedy, facts)
    return Line(TOOLS, name, OK, f"{path} compiles", facts={**facts, "works": True})

"""Compilers, processes and the work tree."""

import shutil
import subprocess
import sys

import pytest

from litlab.commands.doctor import tools as module
from litlab.commands.doctor.environment import code
from litlab.commands.doctor.processes import all_reduce
from litlab.commands.doctor.tools import compiler, tools
from litlab.util.team import use_package

COMPILER = "clang++" if sys.platform == "darwin" else "g++"


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A folder that is all of PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)
    return folder


def program(folder, name, script):
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def test_without_a_compiler_the_line_says_how_to_install_one(path):
    line = compiler()
    assert (line.status, line.facts["works"]) == ("warning", False)
    assert line.what == f"there is no {COMPILER}: torch.compile and operators in C++ do not work"
    assert line.remedy == module.INSTALL[sys.platform]


def test_another_compiler_is_recommended_where_there_is_one(path):
    program(path, "c++", "exit 0")
    assert compiler().remedy == "export CXX=c++"


def test_a_compiler_that_lacks_headers_is_a_warning_with_what_it_says(path):
    program(path, "mine", "echo 'one.cpp:1:10: fatal error: Python.h: No such file or directory' >&2; exit 1")
    line = compiler()
    assert "there is no" in line.what
    program(path, COMPILER, "echo 'one.cpp:1:10: fatal error: Python.h: No such file or directory' >&2; exit 1")
    line = compiler()
    assert line.status == "warning"
    assert "can't compile (one.cpp:1:10: fatal error: Python.h: No such file or directory)" in line.what


@pytest.mark.skipif(shutil.which(COMPILER) is None, reason="there is no compiler")
def test_the_compiler_of_the_variable_is_taken(monkeypatch):
    monkeypatch.setenv("CXX", f"{shutil.which(COMPILER)} -O1")
    line = compiler()
    assert (line.status, line.facts["command"]) == ("ok", [shutil.which(COMPILER), "-O1"])


def test_without_ninja_there_is_a_note(path):
    line = {line.name: line for line in tools()}["ninja"]
    assert (line.status, line.remedy) == ("note", "pip install ninja")
    program(path, "ninja", "exit 0")
    assert {line.name: line for line in tools()}["ninja"].facts["path"] == str(path / "ninja")


def test_processes_that_can_not_compute_together_fail_with_what_they_say(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nowhere")
    line = all_reduce(60)
    assert (line.status, line.facts["works"]) == ("failed", False)
    assert "nowhere" in line.what
    assert "GLOO_SOCKET_IFNAME=lo" in line.remedy


def test_processes_that_take_too_long_are_ended():
    line = all_reduce(0.3)
    assert (line.status, line.what) == ("failed", "no sum in 0.3 s")


def test_code_without_git_or_a_commit_is_a_warning(tmp_path, monkeypatch):
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    use_package("loose")
    try:
        outside = code()
        assert (outside.status, outside.facts["commit"]) == ("warning", None)
        assert outside.remedy.startswith("git init")
        git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", "first"], check=True)
        assert code().status == "ok"
        monkeypatch.setenv("PATH", str(tmp_path))
        assert code().remedy == "install git"
    finally:
        use_package("auks")

"""Copies of this repository in which the package is renamed or litlab is updated; not a test itself."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import OFFLINE, PACKAGE, ROOT
from tests.processes import Python

NAME = "acme" if PACKAGE != "acme" else "craft"  # what a test renames the package to
SETTINGS = ("user.name=A", "user.email=a@b", "commit.gpgsign=false", "init.defaultBranch=main")
PROBE = '''\
"""A network of the team."""

from torch import Tensor, nn


class Probe(nn.Module):
    """One linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3 * 32 * 32, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of shape (batch, classes)."""
        return self.layer(images.flatten(1))
'''
CONFIG = """\
# Images with one layer.
#   python -m {package} fit --config configs/ours/probe.yaml
experiment: probe
model:
  class_path: Classifier
  init_args:
    network: {{class_path: {package}.probe.Probe}}
    optimizer: {{class_path: torch.optim.SGD, init_args: {{lr: 0.001}}}}
data: {{class_path: ImageData, init_args: {{dataset: folder, path: {images}, batch_size: 40}}}}
trainer: {{max_epochs: 1, accelerator: cpu, log_every_n_steps: 1}}
checkpoint: {{monitor: val/acc, mode: max}}
"""
# Forked from a process that has imported torch and, of the repository, `tests` and litlab.
PYTEST = """
import sys
import pytest
for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
    del sys.modules[name]
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--assert=plain", *sys.argv[1:]]))
"""


def git(root: Path, *arguments: object) -> str:
    settings = [word for setting in SETTINGS for word in ("-c", setting)]
    words = ["git", *settings, *map(str, arguments)]
    return subprocess.run(words, cwd=root, check=True, capture_output=True, text=True).stdout


def commit(root: Path, message: str = "x") -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", message)


def copy_files(to: Path) -> None:
    """Copy all files that git has of this repository, or would take; skip the test where it is in none."""
    if not (ROOT / ".git").exists():
        pytest.skip(f"{ROOT} is no git repository")
    names = git(ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0")[:-1]
    for name in names:
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to / name, follow_symlinks=False)


def add_probe(root: Path, images: Path) -> None:
    """Add an experiment of the team, which is in none of litlab's files."""
    (root / f"src/{PACKAGE}/probe.py").write_text(PROBE)
    (root / "configs/ours").mkdir(exist_ok=True)
    (root / "configs/ours/probe.yaml").write_text(CONFIG.format(package=PACKAGE, images=images))


def run(root: Path, *arguments: object) -> tuple[int, str, str]:
    """``python ARGUMENTS`` with the team's package of a repository; its exit code, and what it printed."""
    process = Python(*arguments, cwd=root, environment={**OFFLINE, "PYTHONPATH": root / "src"})
    out, err = process.communicate()
    return process.wait(), out, err


def run_tests(root: Path, *arguments: object) -> None:
    """Run tests of a repository, which must pass."""
    script = root.with_name("run_tests.py")
    script.write_text(PYTEST)
    code, out, err = run(root, script, *arguments)
    assert code == 0, out + err
    assert " passed" in out


def ruff(root: Path) -> bool:
    """Return whether ruff finds nothing."""
    commands = (["check"], ["format", "--check"])
    ruff = [sys.executable, "-m", "ruff"]
    done = [subprocess.run([*ruff, *words, "--no-cache", "."], cwd=root, capture_output=True) for words in commands]
    return not any(one.returncode for one in done)

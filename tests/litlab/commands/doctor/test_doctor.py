"""The command from one end to the other: on this machine, with a broken torch, without packages."""

import os
import subprocess
import sys
import venv

import pytest

from litlab.commands.doctor.doctor import CHECKS
from tests.conftest import OFFLINE, ROOT
from tests.litlab.conftest import TEAM


def test_on_a_sound_machine_nothing_fails_and_nothing_is_left(run, tmp_path):
    done = run("doctor")
    assert (done.code, done.err) == (0, "")
    lines = [line.partition(": ") for line in done.out.splitlines()]
    statuses = {line[0].split()[0] for line in lines}
    names = list(dict.fromkeys(line[0].split()[1] for line in lines))
    assert statuses <= {"ok", "warn"}
    assert names == list(CHECKS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("has_packages", [True, False])
def test_with_a_torch_that_fails_or_without_packages_the_rest_is_checked(tmp_path, has_packages):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13: cannot open shared object file')\n")
    python, says = sys.executable, ["FAIL torch: ImportError: libcudart.so.13: cannot", "ok   packages: "]
    if not has_packages:
        venv.create(tmp_path / "bare")
        missing = {"packages": "packaging", "memory": "psutil"}
        python = tmp_path / "bare/bin/python"
        says = [f"FAIL {name}: No module named '{module}'; activate the" for name, module in missing.items()]
    path = os.pathsep.join([str(ROOT / "src"), str(TEAM)])
    environment = {**os.environ, **OFFLINE, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [python, "-m", "auks", "doctor"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "")
    for text in [*says, "FAIL processes: two of them can't sum a tensor (ImportError: libcudart.so.13"]:
        assert text in done.stdout
    assert " devices: " not in done.stdout

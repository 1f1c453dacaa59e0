"""The command from one end to the other: on this machine, with a broken torch, without packages."""

import os
import subprocess
import sys
import venv

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


def doctor(python, folder) -> tuple[int, str]:
    path = os.pathsep.join([str(ROOT / "src"), str(TEAM)])
    environment = {**os.environ, **OFFLINE, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [python, "-m", "auks", "doctor"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_with_a_torch_that_fails_at_import_the_rest_is_checked(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13: cannot open shared object file')\n")
    code, out = doctor(sys.executable, tmp_path)
    assert code == 1
    assert "FAIL torch: ImportError: libcudart.so.13: cannot open shared object file; pip install --force" in out
    assert "FAIL processes: two of them can't sum a tensor (ImportError: libcudart.so.13" in out
    assert "ok   packages: " in out
    assert " devices: " not in out


def test_in_an_environment_without_packages_it_says_so(tmp_path):
    venv.create(tmp_path / "bare")
    code, out = doctor(tmp_path / "bare/bin/python", tmp_path)
    assert code == 1
    for name, module in {"packages": "packaging", "torch": "torch", "memory": "psutil"}.items():
        assert f"FAIL {name}: No module named '{module}'; activate the environment" in out

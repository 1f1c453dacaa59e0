"""The command from one end to the other: on this machine, with a broken torch, without packages."""

import os
import subprocess
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


def test_where_torch_fails_and_packages_are_missing_the_rest_is_checked(tmp_path):
    (tmp_path / "torch.py").write_text(
        "raise ImportError('libcudart.so.13: cannot open shared object file')\n"
    )
    venv.create(tmp_path / "bare")
    path = os.pathsep.join([str(ROOT / "src"), str(TEAM)])
    environment = {**os.environ, **OFFLINE, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [tmp_path / "bare/bin/python", "-m", "auks", "doctor"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (1, "")
    for text in (
        "FAIL torch: ImportError: libcudart.so.13: cannot",
        "FAIL packages: No module named 'packaging'; activate the",
        "FAIL memory: No module named 'psutil'; activate the",
        "FAIL processes: two of them can't sum a tensor (ImportError: libcudart.so.13",
    ):
        assert text in done.stdout

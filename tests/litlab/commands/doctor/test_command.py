"""The command from one end to the other, on a machine where all is well and on one whose torch is broken."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import venv

import torch

from litlab.commands.doctor.line import GROUPS
from litlab.util.device import has_fast_bfloat16
from tests.conftest import OFFLINE, ROOT
from tests.litlab.conftest import CONFIGS, TEAM


def test_on_a_sound_machine_nothing_fails_and_the_facts_are_there(run, tmp_path):
    (tmp_path / "configs").mkdir()
    for name in ("images", "table"):
        shutil.copy(CONFIGS / f"{name}.yaml", tmp_path / "configs")
    outcome = run("doctor", "--json")
    answer = json.loads(outcome.out)
    lines = {line["name"]: line for line in answer["lines"]}
    failed = [line for line in answer["lines"] if line["status"] == "failed"]
    assert (outcome.code, answer["ok"], failed, outcome.err) == (0, True, [], "")
    assert [line["group"] for line in answer["lines"]] == sorted(
        (line["group"] for line in answer["lines"]), key=GROUPS.index
    )
    assert set(lines["torch"]["facts"]) == {"version", "cuda", "hip"}
    rates = lines["CPU"]["facts"]["gflops"]
    assert set(rates) == {"float32"} | ({"bfloat16"} if has_fast_bfloat16(torch.device("cpu")) else set())
    assert min(*rates.values(), lines["CPU"]["facts"]["copy_gb_s"]) > 0
    assert lines["precision: auto"]["facts"]["precision"] in ("32-true", "16-mixed", "bf16-mixed")
    assert lines["threads"]["facts"]["threads"] >= 1
    assert lines["all-reduce"]["facts"]["works"] is True
    assert lines["generated"]["facts"]["configs"] == ["images", "table"]
    assert lines["auks"]["what"].startswith("its modules can be imported, from ")
    assert lines["C++ compiler"]["facts"]["works"] is True
    assert {"packages", "torchvision", "GPU", "cores", "memory", "data", "runs", "ninja"} <= lines.keys()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["configs"], "nothing is left behind"


def test_with_a_torch_that_fails_at_import_the_rest_is_checked(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13: cannot open shared object file')\n")
    ours, theirs = pty.openpty()
    environment = {**os.environ, **OFFLINE, "COLUMNS": "80", "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "auks", "doctor"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=theirs, stderr=theirs)
    os.close(theirs)
    text = "".join(iter(lambda: read(ours), ""))
    os.close(ours)
    assert process.wait(60) == 1
    assert re.search(r"\x1b\[2KChecking packages, torch, .*processes", text), "a line tells what it is doing"
    rest = text.rpartition("\x1b[2K")[2]
    assert "\x1b[1;31mFAILED" in rest
    rows = re.sub(r"\x1b\[[\d;]*m", "", rest).splitlines()
    assert [row for row in rows if len(row) > 80 and str(tmp_path) not in row] == []
    page = " ".join(" ".join(rows).split())
    assert "FAILED torch it can't be imported: ImportError: libcudart.so.13: cannot open shared object file" in page
    assert f"-> rename {tmp_path}/torch.py: it hides the installed torch" in page
    for check in ("devices", "experiments", "processes"):
        assert f"note {check} not checked, as torch can't be imported" in page
    assert " ok memory " in page
    assert re.search(r"1 failed, \d|1 failed, no", page)


def test_in_an_environment_without_packages_it_says_where_they_are(tmp_path):
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/bin/activate").touch()
    venv.create(tmp_path / "bare")
    path = os.pathsep.join([str(ROOT / "src"), str(TEAM)])
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "80", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [tmp_path / "bare/bin/python", "-m", "auks", "doctor"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    page = " ".join(done.stdout.split())
    assert (done.returncode, done.stderr) == (1, "")
    assert "FAILED packages hardly any are installed: packaging is missing -> source .venv/bin/activate" in page
    assert "No module named 'torch' -> source .venv/bin/activate" in page
    assert "note machine not checked, as there is no module psutil" in page
    assert "2 failed" in page


def read(terminal: int) -> str:
    """What comes next; nothing when the other end is closed."""
    try:
        return os.read(terminal, 2**16).decode(errors="replace")
    except OSError:  # so says Linux
        return ""


def test_a_wrong_argument_is_refused_before_anything_is_checked(run):
    outcome = run("doctor", "--jsn")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == "error: doctor: unrecognized arguments: --jsn\n"


def test_the_help_says_the_exit_codes(run):
    outcome = run("doctor", "--help")
    assert outcome.code == 0
    assert "1 if something failed" in outcome.out

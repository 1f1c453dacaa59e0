"""Short class names: found without imports, and only what is named gets imported."""

import subprocess
import sys

import pytest

from litlab.cli.resolve import find_classes
from tests.conftest import PACKAGE, ROOT

MOST = 110  # modules of litlab that a linear regression imports


def test_classes_are_found_without_importing_them():
    classes = find_classes("auks")
    assert classes["EMA"] == ["litlab.callbacks.averaging"]
    assert classes["SmallCNN"] == ["auks.images"]
    assert "_Prepared" not in classes


@pytest.mark.parametrize("short", ["SmallCNN", "ImageData", "EMA", "WarmupDecay"])
def test_a_short_name_leads_to_its_class(run, short):
    flag = {
        "SmallCNN": "model",
        "ImageData": "data",
        "EMA": "trainer.callbacks",
        "WarmupDecay": "model.schedule.scheduler",
    }
    done = run("fit", "--model=SmallCNN", f"--{flag[short]}.help", short)
    assert done.code == 0, done.err


def test_a_small_experiment_imports_little(tmp_path):
    code = (
        "import sys; sys.argv = ['x', 'fit', '--config', sys.argv[1], '--trainer.max_steps=1', '--vram=null']\n"
        f"from litlab.cli.main import run_command; assert run_command('{PACKAGE}') == 0\n"
        "print(sum(name.startswith('litlab.') for name in sys.modules))"
    )
    config = ROOT / "configs/linear.yaml"
    done = subprocess.run([sys.executable, "-c", code, config], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) <= MOST

"""The tests of litlab run the experiments of a team of their own, `auks`: they know no other."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from litlab.runs.folder import RunFolder
from tests.conftest import SEARCH_PATH, command

TEAM = Path(__file__).parent / "team"
CONFIGS = TEAM / "configs"
BRIEF = ["--trainer.max_epochs=1", "--trainer.log_every_n_steps=1", "--trainer.accelerator=cpu"]

sys.path.append(str(TEAM))
# Of the processes that the tests start
os.environ["PYTHONPATH"] = os.pathsep.join([SEARCH_PATH, str(TEAM)])


@pytest.fixture(scope="module")
def team() -> str:
    """The package whose experiments a test runs."""
    return "auks"


@pytest.fixture
def short(images, texts, series) -> Callable[[Path], list[str]]:
    """Flags that let an experiment of auks read a few files, for one epoch on the CPU."""
    data = {
        "images": ["--data.dataset=folder", f"--data.path={images}"],
        "text": ["--data.dataset=csv", f"--data.path={texts}"],
        "series": [
            "--data.dataset=csv",
            f"--data.path={series}",
            "--data.targets=[load]",
            "--data.val_fraction=0.2",
        ],
    }
    return lambda config: [*data[config.stem], *BRIEF]


@pytest.fixture(scope="session")
def settings(series) -> list[str]:
    """Flags of the run that several tests look at."""
    return [
        f"--config={CONFIGS / 'series.yaml'}", "--data.dataset=csv", f"--data.path={series}",
        "--data.targets=[load]", "--data.batch_size=48", "--data.val_fraction=0.2",
        "--trainer.accelerator=cpu", "--trainer.log_every_n_steps=1", "--trainer.callbacks=[]",
    ]  # fmt: skip


@pytest.fixture(scope="session")
def fitted(settings, tmp_path_factory) -> Path:
    """The logs of a run of two epochs."""
    root = tmp_path_factory.mktemp("fitted")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        name = "--checkpoint.filename={epoch}-{val/mse:.3f}"
        assert command(patch, "fit", *settings, "--trainer.max_epochs=2", name, package="auks") == 0
    return root / "lightning_logs"


@pytest.fixture
def folder(fitted, tmp_path) -> RunFolder:
    """A copy of that run, in the folder that commands run in."""
    shutil.copytree(fitted, tmp_path / "lightning_logs")
    return RunFolder(tmp_path / "lightning_logs/series/version_0")

"""The tests of litlab run the experiments of a team of their own, `auks`: they know no other."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import SEARCH_PATH, Outcome

TEAM = Path(__file__).parent / "team"
CONFIGS = TEAM / "configs"
BRIEF = ["--trainer.max_epochs=1", "--trainer.log_every_n_steps=1", "--trainer.accelerator=cpu"]

sys.path.append(str(TEAM))
os.environ["PYTHONPATH"] = os.pathsep.join([SEARCH_PATH, str(TEAM)])  # of the processes that the tests start


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
            "--data.dataset=csv", f"--data.path={series}", "--data.targets=[load]", "--data.val_fraction=0.2"
        ],
    }  # fmt: skip
    return lambda config: [*data[config.stem], *BRIEF]


@pytest.fixture
def fit_images(run, images) -> Callable[..., Outcome]:
    """Runs a verb of the images experiment on the tiny images."""
    data = ["--data.dataset=folder", f"--data.path={images}", "--trainer.accelerator=cpu"]
    return lambda verb, *arguments: run(verb, "--config", CONFIGS / "images.yaml", *data, *arguments)

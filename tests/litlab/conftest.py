"""The tests of litlab run the experiments of a team of their own, `auks`: they know no other."""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from litlab.runs.folder import RunFolder
from tests.conftest import BRIEF, SEARCH_PATH, command

TEAM = Path(__file__).parent / "team"
CONFIGS = TEAM / "configs"

sys.path.append(str(TEAM))
# Of the processes that the tests start
os.environ["PYTHONPATH"] = os.pathsep.join([SEARCH_PATH, str(TEAM)])


@pytest.fixture(scope="module")
def team() -> str:
    """The package whose experiments a test runs."""
    return "auks"


@pytest.fixture(scope="session")
def small_data(images, texts, series) -> dict[str, list[str]]:
    """Flags of the configs of auks, which let them read a few files, by name."""
    flags = {
        "images": f"--data.dataset=folder --data.path={images}",
        "text": f"--data.dataset=csv --data.path={texts}",
        "series": f"--data.dataset=csv --data.path={series} --data.targets=[load] "
        "--data.val_fraction=0.2",
    }
    return {name: f"--config={CONFIGS}/{name}.yaml {line}".split() for name, line in flags.items()}


@pytest.fixture
def short(small_data) -> Callable[[Path], list[str]]:
    """The same for one epoch on the CPU."""
    return lambda config: [*small_data[config.stem], *BRIEF]


@pytest.fixture(scope="session")
def settings(small_data) -> list[str]:
    """Flags of the run that several tests look at."""
    more = "--data.batch_size=48 --trainer.log_every_n_steps=1 --trainer.callbacks=[]"
    return [*small_data["series"], *more.split(), "--trainer.accelerator=cpu"]


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


@pytest.fixture
def signals() -> Iterator[None]:
    """Lets signals come through that pytest-xdist, nohup or a script in the background ignore."""
    handlers = {signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    before = [signal.signal(*item) for item in handlers.items()]
    yield
    for signum, handler in zip(handlers, before, strict=True):
        signal.signal(signum, handler)

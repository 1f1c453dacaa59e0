"""What all tests share: the command line in a temporary folder, and what each test begins with.

The process that only hands tests to workers imports neither torch nor Lightning.
"""

import gc
import logging
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Self

import pytest
import yaml
from filelock import FileLock

from litlab.cli.argv import find_bases
from litlab.cli.main import run_command
from litlab.util.team import use_package
from tests.processes import Child, start_fork_server
from tests.tiny_files import images, series, texts  # noqa: F401 - fixtures

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "configs"
# The team's, whatever it is called
[PACKAGE] = [path.parent.name for path in ROOT.glob("src/*/__main__.py")]
NAMES = "cifar cifar_vgg forecast forecast_ensemble forecast_small linear mlp tabular text transfer"
SHIPPED = [CONFIGS / f"{name}.yaml" for name in NAMES.split()]
# Nothing was renamed or deleted; each of the examples may be
IS_WHOLE = PACKAGE == "project" and all(config.is_file() for config in SHIPPED)
SHIPPED += sorted(ROOT.glob("src/examples/*/config.yaml"))
# Of processes that use `tests`
SEARCH_PATH = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
LONGEST = {f"test_{name}.py" for name in "new readme removal rename sweep tutorials week".split()}
IMAGES = "--data.dataset=folder --data.path={images} --data.batch_size=40"
TEXTS = "--data.dataset=csv --data.path={texts} --data.batch_size=32"
SERIES = """
    --data.dataset=csv --data.path={series} --data.targets=[load] --data.context_length=48
    --data.horizon=24 --data.batch_size=48 --data.val_fraction=0.2
"""
SMALL_DATA = {  # how each DataModule is made small; one that is not here runs two batches
    "AGNewsData": TEXTS,
    "CIFAR10Data": IMAGES,
    "ETTh1Data": SERIES,
    "FashionMNISTData": IMAGES,  # larger and coloured: the network is sized by them
    "ImageData": IMAGES,
    "SeriesData": SERIES,
    "TextFile": "--data.path={texts} --data.batch_size=32",  # whatever is in it
}
BRIEF = "--trainer.max_epochs=1 --trainer.log_every_n_steps=1 --trainer.accelerator=cpu".split()
OFFLINE = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}


def pytest_configure(config: pytest.Config) -> None:
    """Import Lightning before pytest has log handlers, or it will not make its own.

    Where other processes run the tests, these import it, and share a server that forks.
    """
    if config.getoption("numprocesses", None):
        start_fork_server()
    else:
        import lightning.pytorch  # noqa: F401


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that no process is left alone with it at the end."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


def pytest_collection_finish() -> None:
    """Let Python look for garbage among what tests make alone: all that is imported is a lot."""
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # or libraries would report what is left as leaked


@dataclass
class Outcome:
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str

    def check(self) -> Self:
        """Fail unless the command has gone well."""
        assert self.code == 0, self.err
        return self


@pytest.fixture(scope="module")
def team() -> str:
    """The package whose experiments a test runs; tests/litlab has one of its own."""
    return PACKAGE


@pytest.fixture(autouse=True, scope="module")
def _team(team):
    use_package(team)


@pytest.fixture(scope="session")
def make_once(tmp_path_factory) -> Callable[..., Path]:
    """Makes a folder that takes long, once for all processes that run the tests."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root

    def make(name: str, fill: Callable[[Path], object]) -> Path:
        folder = root / name
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                staged = tmp_path_factory.mktemp(name)
                fill(staged)
                staged.rename(folder)
        return folder

    return make


@pytest.fixture(autouse=True)
def _one_thread():
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _settings_at_start() -> dict[str, Any]:
    from jsonargparse._common import parsing_settings

    return dict(parsing_settings)


@pytest.fixture(autouse=True)
def _one_command_per_process(_settings_at_start):
    """What a command may import, and which run it resumes, is settled once per process: here each
    test is a command.

    So is a fixture of a module, which runs before this one.
    """
    from jsonargparse._common import parsing_settings

    parsing_settings.update(_settings_at_start)
    yield
    parsing_settings.update(_settings_at_start)


@pytest.fixture
def short(request) -> Callable[[Path], list[str]]:
    """Flags that make an experiment small, as `SMALL_DATA` says of its data, for one epoch on the
    CPU.
    """
    limits = [f"--trainer.limit_{split}_batches=2" for split in ("train", "val", "test")]

    def flags(config: Path) -> list[str]:
        settings = settings_of(config)
        own = small_data(settings["data"]["class_path"].rpartition(".")[-1], request)
        if "ensemble" in settings["model"].get("init_args", {}):  # its members read so much
            own += ["--data.context_length=720", "--trainer.limit_train_batches=1.0"]
        return [*(own or limits), *BRIEF]

    return flags


def experiment_of(config: Path) -> str:
    """The experiment of a shipped config: the file's name, or the folder's of an example."""
    return config.parent.name if config.stem == "config" else config.stem


def settings_of(config: Path) -> dict[str, Any]:
    """What a config file and those that it builds on say, as blocks."""

    def merged(before: Any, over: Any) -> Any:
        if not (isinstance(before, dict) and isinstance(over, dict)):
            return over
        return before | {key: merged(before.get(key), value) for key, value in over.items()}

    files = (*find_bases(config), config)
    return reduce(merged, (yaml.safe_load(file.read_text()) for file in files))


def small_data(name: str, request: pytest.FixtureRequest) -> list[str]:
    """Flags that make the data of a class small, if they are known."""
    files = {kind: request.getfixturevalue(kind) for kind in ("images", "texts", "series")}
    return SMALL_DATA.get(name, "").format(**files).split()


def mark_slow(cases: Iterable[str], *fast: str) -> list[Any]:
    """Cases of a test, of which all but the fast ones are run with ``-m matrix`` alone."""
    slow = pytest.mark.matrix
    return [case if case in fast else pytest.param(case, marks=slow) for case in cases]


@pytest.fixture
def run(team, tmp_path, monkeypatch, capsys) -> Callable[..., Outcome]:
    """Runs ``python -m TEAM LINE`` in this process and an empty folder, without a network."""
    monkeypatch.chdir(tmp_path)
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)

    def run_here(line: str, *more: object) -> Outcome:
        capsys.readouterr()  # what fixtures have printed
        code = command(monkeypatch, line, *more, package=team)
        printed = capsys.readouterr()
        return Outcome(code, printed.out, printed.err)

    return run_here


def command(patch: pytest.MonkeyPatch, line: str, *more: object, package: str = PACKAGE) -> int:
    """Runs ``python -m PACKAGE LINE`` with more arguments in this process; returns the exit
    code.
    """
    patch.setattr(sys, "argv", [package, *line.split(), *map(str, more)])
    for name in ("lightning.pytorch", "lightning.fabric"):
        for handler in logging.getLogger(name).handlers:
            # Bound to what stderr was when Lightning was imported
            if type(handler) is logging.StreamHandler:
                patch.setattr(handler, "stream", sys.stderr)
    try:
        return run_command(package)
    except SystemExit as exit_:
        return int(exit_.code or 0)


@pytest.fixture
def children(monkeypatch) -> None:
    """Lets a command in this process start its children with the fork server of the tests."""
    start_fork_server()
    monkeypatch.setattr("litlab.runs.children.Popen", Child)

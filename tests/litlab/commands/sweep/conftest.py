"""Sweeps of tiny fits, as the command and as processes that can be killed; and a sweep without any fits."""

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import optuna
import psutil
import pytest
import yaml
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.pool import NullPool

from litlab.commands.sweep.space import suggest
from litlab.commands.sweep.spec import SweepSpec
from litlab.commands.sweep.study import NothingLeft, SweepStudy, find_study
from tests.conftest import Outcome
from tests.litlab.commands.sweep.studies import choice, search_range, spec
from tests.litlab.conftest import CONFIGS
from tests.processes import Python

SPACE = {
    "model.hidden_size": {"low": 8, "high": 32, "step": 8},
    "model.optimizer.lr": {"low": 1e-3, "high": 0.1, "log": True},
}
SMALL_SPACE = {"model.width": search_range(1, 3), "model.cell": choice({"lstm": "lstm", "gru": "gru"})}
SECONDS = 240


@dataclass
class Sweep:
    """A sweep file in an empty folder, and what is done with it."""

    folder: Path
    content: dict[str, Any]
    environment: dict[str, object] = field(default_factory=dict)
    started: list[Python] = field(default_factory=list)

    @property
    def file(self) -> Path:
        return self.folder / "tiny.yaml"

    @property
    def kept(self) -> Path:
        return self.folder / "lightning_logs" / "sweeps" / "tiny"

    def write(self, **content: Any) -> Path:
        self.content |= content
        self.file.write_text(yaml.safe_dump(self.content, sort_keys=False))
        return self.file

    def start(self) -> Python:
        """Starts the command."""
        arguments = ("-m", "tests.litlab.commands.sweep.command", "sweep", "--config", self.file)
        process = Python(*arguments, cwd=self.folder, environment=self.environment)
        self.started.append(process)
        return process

    def end(self, process: Python) -> Outcome:
        """Waits for a command."""
        out, err = process.communicate(timeout=SECONDS)
        return Outcome(process.returncode, out, err)

    def trials(self, storage: str | None = None) -> list[FrozenTrial]:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        url = storage or f"sqlite:///{self.kept / 'study.db'}"
        reading = RDBStorage(url, {"poolclass": NullPool}, skip_compatibility_check=True, skip_table_creation=True)
        return optuna.load_study(study_name="tiny", storage=reading).trials

    def hold(self) -> None:
        """From now on trials wait in their third epoch for `go_on`, or for a signal."""
        self.gate.unlink()

    def go_on(self) -> None:
        self.gate.touch()

    @property
    def gate(self) -> Path:
        return self.folder / "gate"

    def until_held(self) -> FrozenTrial:
        """Wait until a trial has made two validations and is held."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            if _validations_of_running(self.kept / "study.db") >= 2:
                for trial in self.trials():
                    if trial.state == TrialState.RUNNING and len(trial.intermediate_values) >= 2:
                        return trial
            time.sleep(0.05)
        raise TimeoutError("no trial runs")


def _validations_of_running(file: Path) -> int:
    """How many validations the running trials have made; Optuna would write its tables, and takes longer."""
    query = "SELECT count(*) FROM trials JOIN trial_intermediate_values USING (trial_id) WHERE state = 'RUNNING'"
    if not file.is_file():
        return 0
    with contextlib.closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
        try:
            return connection.execute(query).fetchone()[0]
        except sqlite3.OperationalError:  # no such table, or it is being made
            return 0


@pytest.fixture
def sweep(tmp_path, series) -> Iterator[Sweep]:
    """A sweep of fits of a second, which can be held."""
    settings = {
        "data.dataset": "csv",
        "data.path": str(series),
        "data.targets": ["load"],
        "data.val_fraction": 0.2,
        "trainer.max_epochs": 4,
        "trainer.limit_train_batches": 2,
        "trainer.accelerator": "cpu",
        "trainer.callbacks": [
            {"class_path": "tests.litlab.commands.sweep.trouble.Held", "init_args": {"file": str(tmp_path / "gate")}}
        ],
        "vram": None,
    }
    content = {
        "base": str(CONFIGS / "series.yaml"),
        "settings": settings,
        "metric": "val/mse",
        "direction": "minimize",
        "trials": 3,
        "sampler": {"name": "tpe", "seed": 0},
        "pruner": "none",
        "space": SPACE,
    }
    made = Sweep(tmp_path, content)
    made.write()
    made.go_on()
    yield made
    for process in made.started:
        kill_tree(process.pid)
        process.communicate()


@pytest.fixture
def run_here(run, sweep, fork_server) -> Callable[..., Outcome]:
    """Runs the command to its end in this process."""
    return lambda *arguments: run("sweep", "--config", sweep.file, *arguments)


def tree(pid: int) -> list[psutil.Process]:
    """A process with all that it has started, those that went to a session of their own too."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def kill_tree(pid: int) -> None:
    """kill -9 of a process and all that it has started."""
    for process in tree(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


Refused = Callable[..., str]


@pytest.fixture
def refused(run, sweep) -> Refused:
    """The one line with which a sweep file is refused, and nothing is left behind."""

    def refuse(*arguments: object, **content: Any) -> str:
        outcome = run("sweep", "--config", sweep.write(**content).name, *arguments)
        assert outcome.code == 2, outcome
        assert outcome.out == ""
        assert outcome.err.count("\n") == 1
        assert not sweep.kept.exists()
        return outcome.err.removeprefix("error: ").removesuffix("\n")

    return refuse


@pytest.fixture
def small(tmp_path) -> SweepSpec:
    """A sweep of three trials, which are functions."""
    return spec(tmp_path, trials=3, space=SMALL_SPACE, pruner={"name": "none"})


def worker(spec: SweepSpec) -> SweepStudy:
    """The study as another command has it."""
    study = find_study(spec)
    assert study is not None
    return study


def work(study: SweepStudy, objective: Any = lambda trial: suggest(SMALL_SPACE, trial)["model.width"]) -> None:
    """Run trials until the budget is used up."""
    with pytest.raises(NothingLeft):
        study.optimize(objective, catch=(RuntimeError,))


def run_one(study: SweepStudy) -> None:
    """Ask for a trial and leave it as a process does that is killed in it."""

    class Killed(BaseException):
        pass

    def objective(trial: optuna.Trial) -> float:
        suggest(SMALL_SPACE, trial)
        trial.set_user_attr("runs", ["here"])
        if "replaces" not in trial.user_attrs:
            trial.report(1.0, 0)
        raise Killed

    with pytest.raises(Killed):
        study.optimize(objective)

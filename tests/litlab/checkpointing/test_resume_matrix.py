"""A run that is interrupted and resumed ends with the bits of one that was not: weights, averages, every curve.

pytest -k resume_matrix                a representative part
pytest -k resume_matrix -m matrix      all of it, with a table at the end: 15 minutes

Schedules, averages and early stopping are in test_schedule_matrix.py, in one process.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from litlab.runs.folder import RunFolder, read_json
from tests.conftest import CONFIGS, SEARCH_PATH
from tests.litlab.checkpointing.interrupting import project

# The config of a run may not name its callback without it.
TRUSTED = ("--allow_modules", "tests.litlab.checkpointing.interrupting")
EPOCHS, BATCHES = 3, 7  # a step for every two batches, and one for the odd last one
HOWS = {"kill": -signal.SIGKILL, "SIGTERM": 128 + signal.SIGTERM, "exception": 1, "full": 2}  # exit codes
PLACES = {
    "inside": "on_train_batch_start 1 3",  # between the batches of an accumulation
    "last batch": "on_train_batch_start 1 6",
    "validation": "on_validation_batch_start 1 6",
    "end": "on_train_epoch_end 1 6",
    # within the writing of checkpoints, at the end of an epoch and of the run
    "best": "best_written 1 6",
    "removed": "old_removed 1 6",
    "last": "last_written 1 6",
    "best, end": "best_written 2 6",
    "removed, end": "old_removed 2 6",
    "last, end": "last_written 2 6",
    "test": "on_test_batch_start 3 6",
}
AT_CHECKPOINTS = [place for place in PLACES if "written" in PLACES[place] or "removed" in PLACES[place]] + ["test"]
COMMON = (
    "--trainer.accelerator=cpu", f"--trainer.max_epochs={EPOCHS}", "--trainer.accumulate_grad_batches=2",
    "--trainer.log_every_n_steps=2", "--trainer.precision=32-true", "--trainer.enable_model_summary=false",
    "--trainer.enable_progress_bar=false", "--early_stopping=null", "--checkpoint.monitor=null",
    "--trainer.callbacks=[{class_path: tests.litlab.checkpointing.interrupting.Interrupt}]",
    "--experiment=run",
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One interruption: of which experiment, how, where, with how many workers of a loader and ranks."""

    experiment: str
    how: str
    place: str
    workers: int = 0
    ranks: int = 1

    def __str__(self) -> str:
        return f"{self.experiment}-{self.how}-{self.place}-{self.workers}-{self.ranks}"


@dataclass
class Ran:
    """A run that came to its end."""

    final: dict[str, Any]  # of the last epoch, by name: weights, averages, optimizer
    curves: dict[str, set[tuple[int, float]]]  # of TensorBoard: step and value
    kept: dict[str, Any]  # entries of metrics.json, the status, and the steps of each checkpoint


Fit = Callable[[Cell, str], Ran]


@pytest.fixture(scope="module")
def settings(images, texts, series) -> Callable[[Cell], list[str]]:
    """Flags that make an experiment so small that its epoch has BATCHES batches."""
    of_data = {
        "ImageData": ["--data.dataset=folder", f"--data.path={images}"],
        "text": ["--data.dataset=csv", f"--data.path={texts}", "--data.max_tokens=16", "--data.long_texts=crop"],
        "forecast": [
            "--data.dataset=csv", f"--data.path={series}", "--data.targets=[load]", "--data.context_length=48",
            "--data.horizon=24", "--data.split=[0.6, 0.2, 0.2]",
        ],
    }  # fmt: skip
    own = {
        "cifar": (22, [*of_data["ImageData"], "--model.width=16"]),
        "cifar_vgg": (
            22,
            [*of_data["ImageData"], "--model.network.widths=[4, 4, 4]", "--model.network.hidden=[16, 16]"],
        ),
        "text": (18, [*of_data["text"], "--model.embed_dim=16"]),
        "forecast": (96, [*of_data["forecast"], "--model.hidden_size=8"]),
    }

    def flags(cell: Cell) -> list[str]:
        batch, flags_of_own = own[cell.experiment]
        return [
            "--config", str(CONFIGS / f"{cell.experiment}.yaml"), "--config", str(CONFIGS / "with/ema.yaml"),
            *(["--config", str(CONFIGS / "with/ddp.yaml")] if cell.ranks > 1 else []),
            "--checkpoint.every_minutes=1e-9" if cell.ranks > 1 else "--checkpoint.every_n_train_steps=1",  # after each
            *flags_of_own, *COMMON, f"--data.batch_size={batch // cell.ranks}", f"--data.num_workers={cell.workers}",
        ]  # fmt: skip

    return flags


@pytest.fixture(scope="module")
def whole(settings, tmp_path_factory) -> Callable[[Cell], Ran]:
    """The same run without interruption, by one process that prepares its batches itself; made once."""
    made: dict[tuple[str, int], Ran] = {}

    def run(cell: Cell) -> Ran:
        key = cell.experiment, cell.ranks
        if key not in made:
            folder = tmp_path_factory.mktemp("whole")
            code = project(folder, "fit", *settings(Cell(cell.experiment, "", "", 0, cell.ranks)), count=cell.ranks)
            assert code == 0, printed(folder)
            made[key] = outcome(folder)
            assert len(made[key].curves["train/loss"]) == len(made[key].curves["val/loss"]) == EPOCHS
            assert len(made[key].curves["train/loss_step"]) == EPOCHS * BATCHES // 2
        return made[key]

    return run


@pytest.fixture(scope="module")
def interrupted(settings, whole, tmp_path_factory) -> Callable[[Cell], tuple[int, list[str]]]:
    """Interrupts and resumes a run, and compares it."""

    def run(cell: Cell) -> tuple[int, list[str]]:
        expected = whole(cell)
        folder = tmp_path_factory.mktemp(str(cell))
        plan = f"{cell.how} {PLACES[cell.place]}"
        code = project(folder, "fit", *settings(cell), count=cell.ranks, interrupt=plan)
        assert code == HOWS[cell.how], printed(folder)
        saved = torch.load(folder / "lightning_logs/run/version_0/checkpoints/last.ckpt", weights_only=True)
        code = project(folder, "fit", "--resume", "last", *TRUSTED, count=cell.ranks)
        assert code == 0, printed(folder)
        return saved["global_step"], differences(expected, outcome(folder))

    return run


def printed(folder: Path) -> str:
    return "\n".join(path.read_text()[-3000:] for path in sorted(folder.glob("printed_*.txt")))


def outcome(folder: Path) -> Ran:
    events = EventAccumulator(str(folder / "lightning_logs/run/version_0"), size_guidance={"scalars": 0})
    events.Reload()
    # HPARAMS has what the last command knows: of a run that was killed in its test, only that.
    left_out = ("time/", "memory/", "speed/", "hp/")
    names = [name for name in events.Tags()["scalars"] if not name.startswith(left_out)]
    # What was logged after the checkpoint, before a kill, is logged again, with the same numbers.
    curves = {name: {(event.step, event.value) for event in events.Scalars(name)} for name in names}
    run = RunFolder(folder / "lightning_logs/run/version_0")
    kept: dict[str, Any] = {**dict(leaves(read_json(run.metrics))), "status": run.state()["status"]}
    for path in run.checkpoints.iterdir():
        kept[path.name] = torch.load(path, weights_only=True)["global_step"]
    for name in ("/seconds", "/peak_memory_gib"):
        del kept[name]
    return Ran(dict(leaves(torch.load(folder / "final.pt", weights_only=True))), curves, kept)


def leaves(state: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(state, dict | list):
        for key, part in state.items() if isinstance(state, dict) else enumerate(state):
            yield from leaves(part, f"{name}/{key}")
    else:
        yield name, state


def differences(one: Ran, other: Ran) -> list[str]:
    """What is not the same in every bit."""
    found = []
    for kind in ("final", "curves", "kept"):
        ours, theirs = getattr(one, kind), getattr(other, kind)
        found += [name for name in {**ours, **theirs} if not same(ours.get(name), theirs.get(name))]
    return sorted(found)


def same(one: Any, other: Any) -> bool:
    return (
        torch.equal(one, other) if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) else one == other
    )


REPRESENTATIVE = [
    Cell("cifar_vgg", "kill", "inside", workers=2),
    Cell("cifar_vgg", "SIGTERM", "last batch"),
    Cell("cifar_vgg", "exception", "end"),
    Cell("cifar_vgg", "kill", "validation", ranks=2),
    Cell("text", "kill", "inside", workers=2),
    Cell("forecast", "SIGTERM", "inside"),
    Cell("forecast", "kill", "best"),
    Cell("forecast", "full", "removed, end"),
    Cell("forecast", "kill", "last, end"),
    Cell("forecast", "kill", "test"),
]


@pytest.mark.parametrize("cell", REPRESENTATIVE, ids=str)
def test_a_resumed_run_is_exact(cell, interrupted):
    assert interrupted(cell)[1] == []


MATRIX = [
    *(
        Cell("cifar_vgg", *which)
        for which in product(
            ("kill", "SIGTERM", "exception"), ("inside", "last batch", "validation", "end"), (0, 2), (1, 2)
        )
    ),
    *(Cell("forecast", *which) for which in product(("kill", "exception"), AT_CHECKPOINTS, (0,), (1, 2))),
    *(Cell("forecast", "full", which) for which in ("best", "removed", "best, end", "removed, end")),
    *(
        Cell(experiment, *which)
        for experiment in ("cifar", "text", "forecast")
        for which in (("kill", "inside", 2, 2), ("SIGTERM", "last batch", 0, 1), ("exception", "end", 2, 1))
    ),
]


@pytest.fixture(scope="module")
def table(request) -> Iterator[list[str]]:
    """Rows that are printed when all tests are through."""
    rows = [f"{'experiment':10} {'interrupted by':14} {'in':12} {'workers':>7} {'ranks':>5} {'from step':>9}  resumed"]
    yield rows
    with request.config.pluginmanager.get_plugin("capturemanager").global_and_fixture_disabled():
        print("", *rows, sep="\n")


@pytest.mark.matrix
@pytest.mark.parametrize("cell", MATRIX, ids=str)
def test_matrix(cell, interrupted, table):
    step, differs = interrupted(cell)
    result = "exact" if not differs else f"{len(differs)} differ: {', '.join(differs[:3])}"
    table.append(
        f"{cell.experiment:10} {cell.how:14} {cell.place:12} {cell.workers:7} {cell.ranks:5} {step:9}  {result}"
    )
    assert differs == []


@pytest.mark.matrix
def test_a_command_that_starts_its_second_rank_itself(settings, whole, tmp_path):
    """As a person types it: nothing is imported already, and Lightning starts the other rank."""
    cell = Cell("cifar_vgg", "kill", "inside", ranks=2)
    environment = {**os.environ, "PYTHONPATH": SEARCH_PATH, "OMP_NUM_THREADS": "1"}
    for arguments, plan, code in (
        (settings(cell), f"kill {PLACES['inside']}", -signal.SIGKILL),
        (["--resume", "last", *TRUSTED], "never", 0),
    ):
        with (tmp_path / "printed_0.txt").open("a") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "project", "fit", *arguments], cwd=tmp_path, start_new_session=True,
                env={**environment, "INTERRUPT": plan}, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip
        try:
            assert process.wait(200) == code, printed(tmp_path)
        finally:
            if process.poll() != 0:
                os.killpg(process.pid, signal.SIGKILL)  # the other rank
            process.wait()
    assert differences(whole(cell), outcome(tmp_path)) == []

"""A run that is interrupted and resumed, compared in every bit with one that was not; not a test
itself.
"""

import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from litlab.checkpointing.io import load_torch_file
from litlab.runs.folder import RunFolder, read_json
from tests.conftest import command
from tests.litlab.checkpointing.interrupting import Deliberate, fit

# The config of a run may not name its callback without it.
TRUSTED = ("--allow_modules", "tests.litlab.checkpointing.interrupting")
EPOCHS, BATCHES = 3, 7  # a step for every two batches, and one for the odd last one
# Exit codes
HOWS = {"kill": -signal.SIGKILL, "exception": 1, "full": 2}
HOWS |= {name: 128 + signal.Signals[name] for name in ("SIGTERM", "SIGINT", "SIGHUP")}
PLACES = {
    "inside": "on_train_batch_start 1 3",
    "last batch": "on_train_batch_start 1 6",
    "first batch": "on_train_batch_start 2 0",
    "between": "on_train_batch_start 1 2",  # the batches of an accumulation
    "last step": "on_train_batch_start 2 6",
    "validation": "on_validation_batch_start 1 6",
    "validation within": "on_validation_batch_start 1 3",
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
AT_CHECKPOINTS = [*PLACES][-7:]
COMMON = (
    *f"""
        --trainer.accelerator=cpu --trainer.max_epochs={EPOCHS}
        --trainer.accumulate_grad_batches=2 --trainer.log_every_n_steps=2
        --trainer.precision=32-true --trainer.enable_model_summary=false
        --trainer.enable_progress_bar=false --early_stopping=null --checkpoint.monitor=null
        --checkpoint.every_n_train_steps=1 --ema.decay=0.99 --experiment=run
    """.split(),
    "--trainer.callbacks=[{class_path: tests.litlab.checkpointing.interrupting.Interrupt}]",
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One interruption: of which experiment, how, where, with how many workers of a loader and
    ranks.
    """

    experiment: str
    how: str
    place: str
    workers: int = 0
    ranks: int = 1

    def __str__(self) -> str:
        return "-".join(map(str, vars(self).values()))


Own = Callable[[Cell], list[str]]


@dataclass
class Resuming:
    """Fits of one package's experiments in folders below one.

    Args:
        package: Name of the package.
        folder: Where the runs are made.
        own: The flags of a cell's experiment: its config and data, in batches so large that an
            epoch has BATCHES.
        over: Flags of a cell that go over those of all.
    """

    package: str
    folder: Path
    own: Own
    over: Own = lambda cell: []
    made: dict[tuple[str, int], dict] = field(default_factory=dict)

    def flags(self, cell: Cell) -> list[str]:
        """The flags of a fit."""
        ranks = f"""
            --data.num_workers={cell.workers} --trainer.devices={cell.ranks}
            --trainer.strategy={"ddp" if cell.ranks > 1 else "auto"}
        """
        return [*self.own(cell), *COMMON, *ranks.split(), *self.over(cell)]

    def whole(self, cell: Cell) -> dict:
        """The same run without interruption, by one process that prepares its batches itself; made
        once.
        """
        key = cell.experiment, cell.ranks
        if key not in self.made:
            folder = self.folder / f"whole-{cell.experiment}-{cell.ranks}"
            flags = self.flags(Cell(cell.experiment, "", "", 0, cell.ranks))
            self._fit(cell, folder, *flags)
            ran = self.made[key] = outcome(folder)
            assert len(ran["curves/train/loss"]) == EPOCHS
            assert len(ran["curves/train/loss_step"]) == EPOCHS * BATCHES // 2
        return self.made[key]

    def interrupted(self, cell: Cell) -> tuple[int, list[str]]:
        """Interrupts and resumes a run; returns the step it was resumed from, and what differs in
        the end.
        """
        expected = self.whole(cell)
        folder = self.folder / str(cell)
        plan = f"{cell.how} {PLACES[cell.place]}"
        self._fit(cell, folder, *self.flags(cell), interrupt=plan, code=HOWS[cell.how])
        saved = load_torch_file(folder / "lightning_logs/run/version_0/checkpoints/last.ckpt")
        self._fit(cell, folder, "--resume", "last", *TRUSTED)
        return saved["global_step"], differences(expected, outcome(folder))

    def _fit(
        self, cell: Cell, folder: Path, *flags: str, interrupt: str = "never", code: int = 0
    ) -> None:
        """Fit in this process if one is enough and outlives it, which is faster."""
        folder.mkdir(parents=True, exist_ok=True)
        ended, printed = HOWS["exception"], "see above"
        if (
            cell.ranks > 1
            or "--data.num_workers=2" in flags
            or interrupt.startswith(("kill", "full"))
        ):
            more = {"count": cell.ranks, "interrupt": interrupt}
            ended, printed = fit(folder, self.package, *flags, **more)
        else:
            with (
                pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(),
                suppress(Deliberate),
            ):  # fmt: skip
                warnings.simplefilter("ignore")
                patch.chdir(folder)
                patch.setenv("INTERRUPT", interrupt)
                ended = command(patch, "fit", *flags, package=self.package)
        assert ended == code, printed


def outcome(folder: Path) -> dict[str, Any]:
    """What a run has in the end: weights, averages, optimizer; curves; metrics, status, steps of
    its checkpoints.
    """
    run = RunFolder(folder / "lightning_logs/run/version_0")
    events = EventAccumulator(str(run.path), {"scalars": 0}, purge_orphaned_data=False)
    events.Reload()
    ran = dict(leaves(load_torch_file(folder / "final.pt"))) | dict(leaves(read_json(run.metrics)))
    del ran["/seconds"], ran["/peak_memory_gib"]
    ran["status"] = run.read_state()["status"]
    for path in run.checkpoints.iterdir():
        ran[path.name] = load_torch_file(path)["global_step"]
    for name in events.Tags()["scalars"]:
        # HPARAMS has what the last command knows: of a run that was killed in its test, only that.
        if not name.startswith(("time/", "memory/", "speed/", "hp/")):
            # What was logged after the checkpoint, before a kill, is logged again, with the same
            # numbers.
            ran[f"curves/{name}"] = {(event.step, event.value) for event in events.Scalars(name)}
    return ran


def leaves(state: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(state, dict | list):
        for key, part in state.items() if isinstance(state, dict) else enumerate(state):
            yield from leaves(part, f"{name}/{key}")
    elif hasattr(state, "codes"):  # numbers of 8 bits, as torchao stores them
        yield from leaves({"codes": state.codes, "scale": state.scale}, name)
    else:
        yield name, state


def differences(one: dict, other: dict) -> list[str]:
    """What is not the same in every bit."""
    return sorted(name for name in {**one, **other} if not same(one.get(name), other.get(name)))


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    return one == other

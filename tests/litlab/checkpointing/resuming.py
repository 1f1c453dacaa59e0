"""A run that is interrupted and resumed, compared in every bit with one that was not; not a test itself."""

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from litlab.checkpointing.io import load_torch_file
from litlab.runs.folder import RunFolder, read_json
from tests.litlab.checkpointing.interrupting import fit

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


Own = Callable[[Cell], list[str]]


@dataclass
class Resuming:
    """Fits of one package's experiments in folders below one.

    Args:
        package: Name of the package.
        folder: Where the runs are made.
        own: The flags of a cell's experiment: its config and data, in batches so large that an epoch has BATCHES.
        over: Flags of a cell that go over those of all.
    """

    package: str
    folder: Path
    own: Own
    over: Own = lambda cell: []
    made: dict[tuple[str, int], Ran] = field(default_factory=dict)

    def flags(self, cell: Cell) -> list[str]:
        """The flags of a fit."""
        return [
            "--ema.decay=0.99", *self.own(cell), *COMMON, f"--data.num_workers={cell.workers}",
            *(["--trainer.strategy=ddp", "--trainer.devices=2"] if cell.ranks > 1 else []),
            "--checkpoint.every_n_train_steps=1",
            *self.over(cell),
        ]  # fmt: skip

    def whole(self, cell: Cell) -> Ran:
        """The same run without interruption, by one process that prepares its batches itself; made once."""
        key = cell.experiment, cell.ranks
        if key not in self.made:
            folder = self.folder / f"whole-{cell.experiment}-{cell.ranks}"
            flags = self.flags(Cell(cell.experiment, "", "", 0, cell.ranks))
            code = fit(folder, *flags, package=self.package, count=cell.ranks)
            assert code == 0, printed(folder)
            self.made[key] = outcome(folder)
            curves = self.made[key].curves
            assert len(curves["train/loss"]) == len(curves["val/loss"]) == EPOCHS
            assert len(curves["train/loss_step"]) == EPOCHS * BATCHES // 2
        return self.made[key]

    def interrupted(self, cell: Cell) -> tuple[int, list[str]]:
        """Interrupts and resumes a run; returns the step it was resumed from, and what differs in the end."""
        expected = self.whole(cell)
        folder = self.folder / str(cell)
        plan = f"{cell.how} {PLACES[cell.place]}"
        code = fit(folder, *self.flags(cell), package=self.package, count=cell.ranks, interrupt=plan)
        assert code == HOWS[cell.how], printed(folder)
        saved = load_torch_file(folder / "lightning_logs/run/version_0/checkpoints/last.ckpt")
        code = fit(folder, "--resume", "last", *TRUSTED, package=self.package, count=cell.ranks)
        assert code == 0, printed(folder)
        return saved["global_step"], differences(expected, outcome(folder))


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
        kept[path.name] = load_torch_file(path)["global_step"]
    for name in ("/seconds", "/peak_memory_gib"):
        del kept[name]
    return Ran(dict(leaves(load_torch_file(folder / "final.pt"))), curves, kept)


def leaves(state: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(state, dict | list):
        for key, part in state.items() if isinstance(state, dict) else enumerate(state):
            yield from leaves(part, f"{name}/{key}")
    elif hasattr(state, "codes"):  # numbers of 8 bits, as torchao stores them
        yield from leaves({"codes": state.codes, "scale": state.scale}, name)
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

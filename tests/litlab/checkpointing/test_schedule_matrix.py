"""A run that is interrupted and resumed in this process: schedules, averages, early stopping,
random numbers.

pytest -k schedule_matrix                a representative part
pytest -k schedule_matrix -m matrix      all of it: 3 minutes
"""

from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from litlab.callbacks import EMA, SWA, Compile
from litlab.callbacks.early_stopping import RunEarlyStopping
from litlab.checkpointing.resume import AccumulationSchedule
from litlab.optim import Schedule, WarmupDecay
from tests.litlab.checkpointing.in_process import Draws, fit
from tests.litlab.checkpointing.resuming import differences, leaves

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers",
    "ignore:.*logging interval",
    "ignore:Checkpoint directory",
    "ignore:A `OneCycleLR`",
)
EPOCHS = 4
# Than 10 below the best: always
WORSE = {"patience": 0, "factor": 0.5, "threshold": 10.0, "threshold_mode": "abs"}
SCHEDULERS: dict[str, Any] = {
    "cosine": lr_scheduler.CosineAnnealingLR,
    "one-cycle": partial(lr_scheduler.OneCycleLR, max_lr=0.1),
    "plateau": partial(lr_scheduler.ReduceLROnPlateau, **WORSE),
    "plateau-train": partial(lr_scheduler.ReduceLROnPlateau, **WORSE),
    "restarts": partial(lr_scheduler.CosineAnnealingWarmRestarts, T_0=2),
    "warm-up": partial(WarmupDecay, warmup=0.3, decay="cosine"),
}
MONITORS = {"plateau": "val/loss", "plateau-train": "train/loss"}
PLACES = {
    "inside": ("batch", 1, 3),
    "first": ("batch", 2, 0),
    "validation": ("validation", 1, 1),
    "end": ("end", 1),
}
# How checkpoints are written.
SAVING: dict[str, dict[str, Any]] = {
    "step": {"every_n_train_steps": 1},
    "epoch": {"monitor": "val/loss"},
}
EXTRAS: dict[str, dict[str, Any]] = {
    "": {},
    "unvalidated": {"limit_val_batches": 0},
    "often": {"val_check_interval": 2},
    "rare": {"check_val_every_n_epoch": 2},
    "ema": {"callbacks": lambda: [EMA(0.9)]},
    "swa": {"callbacks": lambda: [SWA(0.3)]},  # from the second epoch on
    "by epoch": {
        "callbacks": lambda: [AccumulationSchedule({0: 1, 1: 3, 2: 2})],
        "accumulate_grad_batches": 1,
    },
    "compiled": {"callbacks": lambda: [Compile("default", backend="aot_eager")]},
    "stopping": {"callbacks": lambda: [RunEarlyStopping("val/loss", patience=2, min_delta=10.0)]},
    "stopping-train": {
        "callbacks": lambda: [RunEarlyStopping("train/loss", patience=2, min_delta=10.0)]
    },
}


@dataclass(frozen=True)
class Cell:
    """One interruption: of which schedule, where, resumed from a checkpoint that was written
    when.
    """

    schedule: str
    interval: str = "epoch"
    frequency: int = 1
    place: str = "end"
    saving: str = "epoch"
    extra: str = ""

    def __str__(self) -> str:
        return "-".join(map(str, vars(self).values()))


class Steps(Draws):
    """Logs the loss of each step, for a schedule that looks at it after each."""

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        self.log("step/loss", loss)
        return loss


def run_of(cell: Cell, folder, stop=None, resume=False):
    monitor = MONITORS.get(cell.schedule)
    if monitor and cell.interval == "step":
        monitor = "step/loss"
    chosen = Schedule(SCHEDULERS[cell.schedule], cell.interval, cell.frequency, monitor)  # pyright: ignore[reportArgumentType]
    module = partial(Steps if monitor == "step/loss" else Draws, schedule=chosen)
    settings = dict(EXTRAS[cell.extra])
    callbacks = settings.pop("callbacks", list)()
    torch._dynamo.reset()  # the resumed run compiles in a process of its own
    return fit(
        folder, stop, resume, options=SAVING[cell.saving], module=module, callbacks=callbacks,
        **{"max_epochs": EPOCHS, "num_sanity_val_steps": 0, **settings},
    )  # fmt: skip


def states(model, fitting) -> dict[str, Any]:
    """What has to be the same at the end: weights, averages, optimizer, schedule, metrics, epochs,
    steps.
    """
    schedule = fitting.lr_scheduler_configs[0].scheduler.state_dict()
    return dict(leaves({
        "weights": dict(model.state_dict()),
        "optimizer": fitting.optimizers[0].state_dict(),
        "schedule": {key: value for key, value in schedule.items() if not callable(value)},
        "metrics": {name: value.item() for name, value in fitting.callback_metrics.items()},
        "progress": [fitting.current_epoch, fitting.global_step],
    }))  # fmt: skip


@pytest.fixture(scope="module")
def compare_runs(tmp_path_factory):
    """Interrupts and resumes a run; what is not as in one that never stopped."""
    torch.set_num_threads(1)
    whole = {}

    def compare(cell: Cell) -> list[str]:
        key = cell.schedule, cell.interval, cell.frequency, cell.saving, cell.extra
        if key not in whole:
            model, fitting = run_of(cell, tmp_path_factory.mktemp("whole"))
            whole[key] = states(model, fitting), model
        folder = tmp_path_factory.mktemp("run")
        before, _ = run_of(cell, folder, PLACES[cell.place])
        after, fitting = run_of(cell, folder, resume=True)
        (expected, fitted), found = whole[key], states(after, fitting)
        names = differences(expected, found)
        assert after.rates.keys() != fitted.rates.keys(), "it went on, it did not begin again"
        for name in ("rates", "drawn", "ended"):  # on the way
            if getattr(before, name) | getattr(after, name) != getattr(fitted, name):
                names.append(name)
        return names

    return compare


ALL = [
    Cell(schedule, interval, frequency, place, when)
    for schedule, interval, frequency, place, when in product(
        SCHEDULERS, ("step", "epoch"), (1, 2), PLACES, SAVING
    )
] + [
    Cell(schedule, "epoch", 2 if extra == "rare" else 1, place, when, extra)
    for schedule, place, when, extra in product(
        ("plateau", "plateau-train", "warm-up"), PLACES, SAVING, EXTRAS
    )
    if extra not in ("", "unvalidated")
]


REPRESENTATIVE = [
    Cell("plateau"),
    Cell("warm-up", place="first", saving="step", extra="unvalidated"),
    Cell("warm-up", place="inside", saving="step", extra="often"),
    Cell("plateau", "step", 2, "inside", "step"),
    Cell("plateau-train", place="first", saving="epoch", extra="stopping-train"),
    Cell("one-cycle", "step", 2, "validation", "step", "by epoch"),
    Cell("restarts", place="first", extra="ema"),
    Cell("warm-up", "step", 1, "inside", "step", "swa"),
]


@pytest.mark.parametrize("cell", REPRESENTATIVE, ids=str)
def test_a_resumed_schedule_is_exact(cell, compare_runs):
    assert compare_runs(cell) == []


@pytest.mark.matrix
@pytest.mark.parametrize("cell", ALL, ids=str)
def test_matrix(cell, compare_runs):
    assert compare_runs(cell) == []

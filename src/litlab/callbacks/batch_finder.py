"""Find a batch size before the training starts."""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from lightning.pytorch.utilities.seed import isolate_rng
from rich.table import Table

from litlab.callbacks.few_steps import FewSteps
from litlab.callbacks.finder import Finder, searches, write_overlay
from litlab.callbacks.reporting import run_folder
from litlab.callbacks.side_run import check_copies, side_run
from litlab.errors import UserError
from litlab.types import PositiveFloat, PositiveInt
from litlab.util.device import GIB, is_out_of_memory
from litlab.util.text import print_table

LEAST = 2  # samples: norms over the batch can't train with one
SMALLER = 8  # the search starts at this fraction of the size that is set
AS_FAST = 0.98  # of the highest speed: the smallest of these sizes counts as the fastest
SHARE = 0.8  # of the host's free memory that may be used
RULE = """\
The learning rate may have to follow. For k times the batch size: SGD and Muon k times the rate, with warm-up (Goyal et
al. 2017, arXiv:1706.02677); Adam and its kin sqrt(k) times (Malladi et al. 2022, arXiv:2205.10287). Or search it: add
LRFinder to trainer.callbacks, which runs after BatchFinder. The same epochs have 1/k of the steps."""


@dataclass(frozen=True)
class Tried:
    """What a batch size has shown.

    Args:
        size: The batch size.
        speed: Samples per second, loading included.
        gib: Peak memory of the device, or of the process without one.
        is_all: Whether an epoch is one batch.
    """

    size: int
    speed: float
    gib: float
    is_all: bool


class BatchFinder(Finder):
    """Try batch sizes, and train with the fastest one, or the largest that fits into the memory.

    A copy of the model takes a few steps with each size: from an eighth of the configured one, doubled until the memory
    is used up, an epoch is a single batch, or `max_size` is reached. Where the memory ends, the size is narrowed down
    to a sixteenth. The run then goes on as if it had been given the size by hand. Of sizes within 2 % of the highest
    number of samples per second, the smallest is the fastest: small batches learn more per sample.

    The memory of a GPU is used up when it says so. Without a GPU a size is not tried if memory, which grows in a line,
    would pass `memory_gib`. ``batch_size_fastest.yaml`` and ``batch_size_largest.yaml`` in the run folder are overlays
    for ``fit``. The learning rate stays as it is; they say how it may have to change. A resumed run keeps the size.

    The steps are those of the model as it is, without ``compile``.

    Lightning's ``BatchSizeFinder`` (2.6.6) looks for the largest size only, has no limit on a CPU, and trains the model
    itself: then a checkpoint restores its weights, but neither the metrics of the epoch nor the random state.

    Args:
        take: The size to train with.
        max_size: The largest size to try.
        memory_gib: Memory of the process that a size may need without a GPU, in GiB. null: four fifths of what is free.
        train: Whether the training follows. false: the fit ends with the search.

    Raises:
        UserError: If ``take`` is unknown; in a fit, if the data has no batch size to set, several processes train,
            or not even the smallest size fits.
    """

    key, what = "batch_finder", "size"

    def __init__(
        self,
        take: Literal["fastest", "largest"] = "fastest",
        max_size: PositiveInt = 8192,
        memory_gib: PositiveFloat | None = None,
        train: bool = True,
    ) -> None:
        if take not in ("fastest", "largest"):
            raise UserError(f"trainer.callbacks.BatchFinder.take: {take!r} is unknown; choose fastest or largest")
        self.take = take
        self.max_size = max_size
        self.memory_gib = memory_gib
        super().__init__(train)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Search, unless the run is resumed; set the size, write the overlays."""
        if not searches(trainer):
            return
        check_copies(self, trainer, pl_module)
        if trainer.world_size > 1:
            raise UserError(
                f"trainer.devices: {trainer.world_size} processes, and BatchFinder in trainer.callbacks looks at one; "
                "let it search with 1, then train with its overlay"
            )
        name = _setting(trainer)
        self._before = before = int(getattr(trainer.datamodule, name))  # pyright: ignore[reportAttributeAccessIssue]
        limit = self.memory_gib or _resident() + SHARE * psutil.virtual_memory().available / GIB
        on_gpu = trainer.strategy.root_device.type != "cpu"

        def attempt(size: int) -> Tried | None:
            return _attempt(trainer, pl_module, name, size)

        largest = max(self.max_size, min(LEAST, before))
        first = max(min(LEAST, before), min(before, largest) // SMALLER)
        with isolate_rng():
            tried = search(attempt, first, largest, None if on_gpu else limit)
        if not tried:
            raise UserError(
                f"data.{name}: not even a batch of {min(first, LEAST)} fits into the memory of "
                f"{trainer.strategy.root_device}, BatchFinder has found; choose a smaller model"
            )
        sizes = {"fastest": fastest(tried), "largest": max(tried, key=lambda one: one.size)}
        self.found = found = sizes[self.take].size
        self._report(run_folder(trainer), name, tried, sizes)
        _set(trainer, name, found)
        trainer.strategy.setup_optimizers(trainer)  # schedules count the steps anew
        trainer.should_stop = trainer.should_stop or not self.train

    def _report(self, folder: Path | None, name: str, tried: list[Tried], sizes: dict[str, Tried]) -> None:
        table = Table(title=f"BatchFinder: data.{name}", title_justify="left")
        for title in (name, "samples/s", "GiB", ""):
            table.add_column(title, justify="right" if title else "left")
        for one in tried:
            marks = [mark for mark, size in sizes.items() if size is one]
            marks += ["trained with"] if one.size == self.found else []
            table.add_row(str(one.size), f"{one.speed:,.0f}", f"{one.gib:.2f}", ", ".join(marks))
        print_table(table)
        for mark, one in sizes.items():
            if folder is None:
                continue
            says = f"The {mark} batch size: {one.speed:,.0f} samples/s in {one.gib:.2f} GiB; {self._before} was set.\n"
            file = write_overlay(folder, f"batch_size_{mark}", says + RULE, {"data": {"init_args": {name: one.size}}})
            rank_zero_info(f"BatchFinder: the {mark} data.{name} is {one.size} instead of {self._before} ({file})")

    def value(self, trainer: Trainer, pl_module: LightningModule) -> float:
        """Return the data's batch size."""
        return getattr(trainer.datamodule, _setting(trainer))  # pyright: ignore[reportAttributeAccessIssue]

    def set_value(self, trainer: Trainer, pl_module: LightningModule, value: float) -> None:
        """Set it."""
        _set(trainer, _setting(trainer), int(value))


def search(attempt: Callable[[int], Tried | None], first: int, last: int, limit: float | None) -> list[Tried]:
    """Try sizes, doubled each time, and narrow down where the memory ends.

    Args:
        attempt: Tries a size; returns None where the memory is used up.
        first: The size to start with.
        last: The largest to try.
        limit: GiB that a size may be expected to need; None: whatever the device says.

    Returns:
        What each size that fits has shown, in ascending order.
    """
    tried: list[Tried] = []
    size, too_large = first, last + 1
    while size < too_large:
        one = None if limit is not None and _expected_gib(tried, size) > limit else attempt(size)
        if one is None:
            too_large = size
        else:
            tried = sorted([*tried, one], key=lambda known: known.size)
            if one.is_all:
                break
        fits = tried[-1].size if tried else min(first, LEAST) - 1
        size = min(2 * fits, last) if too_large > last else (fits + too_large) // 2
        if fits == last:
            break
        if too_large <= last and too_large - fits <= max(1, fits // 16):
            break
    return tried


def fastest(tried: list[Tried]) -> Tried:
    """Return the smallest of the sizes that are about as fast as the fastest one."""
    highest = max(one.speed for one in tried)
    return min((one for one in tried if one.speed >= AS_FAST * highest), key=lambda one: one.size)


def _expected_gib(tried: list[Tried], size: int) -> float:
    """Return the memory that a size would take, on the line through the two largest so far."""
    if len(tried) < 2:
        return 0.0
    one, two = tried[-2:]
    return two.gib + max(0.0, two.gib - one.gib) * (size - two.size) / (two.size - one.size)


def _attempt(trainer: Trainer, pl_module: LightningModule, name: str, size: int) -> Tried | None:
    device = trainer.strategy.root_device
    clock = FewSteps()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    try:
        side_run(trainer, pl_module, clock, **{name: size})
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return None
    finally:
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    return Tried(size, clock.samples / clock.seconds, clock.gib, clock.is_all)


def _setting(trainer: Trainer) -> str:
    """Return the name of the data's batch size."""
    data = getattr(trainer, "datamodule", None)
    if not getattr(data, "batch_size", None):
        raise UserError(
            f"trainer.callbacks: BatchFinder sets data.batch_size, which {type(data).__name__} does not have; add it "
            "to the data, or leave BatchFinder out"
        )
    return "batch_size"


def _set(trainer: Trainer, name: str, size: int) -> None:
    data: Any = trainer.datamodule  # pyright: ignore[reportAttributeAccessIssue]
    setattr(data, name, size)
    if name in data.hparams:
        data.hparams[name] = size
    trainer.fit_loop._combined_loader = None  # it may have been made to count the steps


def _resident() -> float:
    return psutil.Process().memory_info().rss / GIB

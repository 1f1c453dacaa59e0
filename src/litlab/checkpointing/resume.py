"""What a checkpoint needs besides Lightning's own, so that a resumed run gets the numbers of one
that never stopped.
"""

import os
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import (
    BaseFinetuning,
    BatchSizeFinder,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelPruning,
    SpikeDetection,
)

from litlab.checkpointing.loops import (
    complete_epoch,
    count_restart_once,
    forget_loader,
    forget_restart,
    is_within_epoch,
    precede,
    step_plateaus,
)
from litlab.errors import UserError
from litlab.metrics import load_metric_states, metric_states
from litlab.util.ranks import data_ranks
from litlab.util.splitmix import next_number

KEY = "exact_resume"  # in the checkpoint: a list with what each process has
EPOCH_START = 2**40 - 1  # in the place of a batch
PROGRESS = ("last_epoch", "_step_count", "_last_lr", "base_lrs")  # in the state of a schedule


class ExactResume(Callback):
    """Let a resumed run continue with the random numbers and metrics that it was interrupted with.

    - Before each training batch torch's generators are seeded from (seed, rank, epoch, batch), so
      that dropout depends on nothing that happened before: a plot, a validation, the first call of
      a compiled network. Before each validation and epoch numpy's and Python's are seeded as well.
      A plain loader that shuffles draws its order then.
    - The state of all generators is in the checkpoint, for what is drawn between two steps (by a
      dataset, or in ``on_after_batch_transfer``), and for numpy's and Python's, which take several
      times as long to seed as torch's. Workers of a loader have their own: what they draw has to
      depend on seed, epoch and index.
    - So is the state of all torchmetrics of the model, of every process, and what callbacks and
      ReduceLROnPlateau monitor. Lightning (2.6.6) does not step the latter at the end of an epoch
      that is resumed midway.
    - A checkpoint between two epochs says that the first is complete, and the second begins like
      any other.
    - A schedule that takes its length from the run ends with it, if that is longer now.

    Raises:
        UserError: In a fit that continues within an epoch, if another number of processes shares
            the data.
    """

    def __init__(self) -> None:
        self._random: Any = None  # a RandomState, once the fit has started
        self._checkpoint: dict[str, Any] = {}  # until training starts
        # Of the metrics, before the validation that is running
        self._states: dict[str, Any] | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Prepare what Lightning restores, as it restores the loops: the model, the callbacks and
        all schedules exist then, whatever the strategy.
        """

        def prepare() -> None:
            forget_loader(trainer)
            renew_length(trainer, self._checkpoint)

        # Then comes the state of the schedules. No hook is called at this time with every strategy
        precede(trainer.fit_loop, "load_state_dict", prepare)

    # Random numbers

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._random = RandomState(trainer)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._random.seed_all(trainer.current_epoch, EPOCH_START)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        # Restoring the state once would not do: what only one of two runs draws would shift all
        # that follows. Batches have even numbers, the validations after them odd ones.
        self._random.seed_torch(trainer.current_epoch, 2 * batch_idx)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Seed all generators, and keep the metrics of the training: a validation that is
        interrupted is repeated.
        """
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            count_restart_once(trainer)
            self._random.seed_all(trainer.current_epoch, 2 * trainer.fit_loop.batch_idx + 1)
            self._states = metric_states(pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._states = None

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        forget_restart(trainer)

    # The checkpoint

    def on_save_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add what each process has; every process calls this."""
        if trainer.state.fn != "fit":
            return
        # What this process has. Lightning's finders save before `on_fit_start`
        self._random = self._random or RandomState(trainer)
        record = {
            "data_rank": data_ranks(trainer)["rank"],
            "random": self._random.get_state(),
            "states": metric_states(pl_module) if self._states is None else self._states,
            "metrics": {name: value.cpu() for name, value in trainer.callback_metrics.items()},
        }

        # What all have, in the order of the ranks: the first one writes the file
        records = [record] * trainer.world_size
        if trainer.world_size > 1:
            torch.distributed.all_gather_object(records, record)
        checkpoint[KEY] = records
        complete_epoch(checkpoint)

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Keep it until training starts; refuse another number of processes within an epoch."""
        if trainer.state.fn != "fit":
            return
        self._checkpoint = checkpoint
        # Processes that share layers have one data rank: they read the same samples
        before = len({record["data_rank"] for record in checkpoint.get(KEY, [])})
        now = data_ranks(trainer)["world_size"]
        if is_within_epoch(checkpoint) and before not in (0, now):
            raise UserError(
                f"trainer.devices: the run was interrupted within an epoch that {before} "
                f"data-parallel processes shared, and trainer.strategy makes {now} of the devices "
                f"here; choose them so that there are {before}"
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore what the checkpoint holds, now that Lightning has restored the rest."""
        checkpoint, self._checkpoint = self._checkpoint, {}
        if not checkpoint:
            return
        # Between two epochs: the next one begins like any other
        if not is_within_epoch(checkpoint):
            forget_restart(trainer)
        records = checkpoint.get(KEY, [])
        if not records:  # of plain Lightning
            return

        # What is monitored: the property returns the dictionary that Lightning collects it in
        metrics = records[0]["metrics"]
        trainer.callback_metrics.update(
            {name: value.to(pl_module.device) for name, value in metrics.items()}
        )
        step_plateaus(trainer)

        # What each process had. If the data is shared among more or fewer now, nothing of it fits
        ranks = data_ranks(trainer)
        of_data_rank = {record["data_rank"]: record for record in reversed(records)}
        if len(of_data_rank) == ranks["world_size"]:
            # The same processes as before; or the model is divided in another way, and the first
            # one that had these samples counts
            is_same = len(records) == trainer.world_size
            record = records[trainer.global_rank] if is_same else of_data_rank[ranks["rank"]]
            self._random.restore(record["random"])
            load_metric_states(pl_module, record["states"], pl_module.device)


class RandomState:
    """The random number generators of a process: torch's (of the CPU and the device), numpy's and
        Python's.

    Args:
        trainer: The trainer whose device and rank they belong to.
    """

    def __init__(self, trainer: Trainer) -> None:
        device = trainer.strategy.root_device
        # By name, so that a checkpoint of a GPU can go on on a CPU
        self._generators: dict[str, Any] = {"cpu": torch.default_generator}
        if device.type == "cuda":
            self._generators["cuda"] = torch.cuda.default_generators[device.index]
        elif device.type == "mps":
            mps = torch.mps  # its generator is not public
            self._generators["mps"] = SimpleNamespace(
                manual_seed=mps.manual_seed,
                get_state=mps.get_rng_state,
                set_state=mps.set_rng_state,
            )
        # What seed_everything was given
        seed = int(os.environ.get("PL_GLOBAL_SEED") or torch.initial_seed())
        rank = data_ranks(trainer)["rank"]  # processes that share layers drop the same values
        self._seed = next_number(next_number(seed) + rank)

    def seed_torch(self, epoch: int, position: int) -> int:
        """Seed torch's generators from (seed, rank, epoch, place) alone, which takes 1 µs each.

        ``torch.manual_seed`` takes 170 µs where there is no GPU (torch 2.15): it keeps each call,
        with its stack, for a later initialisation of CUDA.

        Args:
            epoch: The epoch.
            position: A number within the epoch, below 2**40.

        Returns:
            The seed.
        """
        # The epoch in the bits above 40, the position below: no two places have one number
        seed = next_number(self._seed + (epoch << 40) + position)
        for generator in self._generators.values():
            generator.manual_seed(seed)
        return seed

    def seed_all(self, epoch: int, position: int) -> None:
        """Seed numpy's generator and Python's as well."""
        seed = self.seed_torch(epoch, position)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # it takes no more bits

    def get_state(self) -> dict[str, Any]:
        """Return the state of all generators, as ``weights_only=True`` loads it."""
        # An array of numpy would not be loaded: its 624 words become a list
        kind, words, *rest = np.random.get_state(legacy=True)
        states = {device: generator.get_state() for device, generator in self._generators.items()}
        return {
            **states,
            "numpy": [kind, list(map(int, words)), *rest],
            "python": random.getstate(),
        }

    def restore(self, states: dict[str, Any]) -> None:
        """Restore the state of all generators; one of a device that was not there before stays as
        it is.
        """
        for device, generator in self._generators.items():
            if device in states:
                generator.set_state(states[device])
        kind, words, *rest = states["numpy"]
        np.random.set_state((kind, np.array(words, dtype=np.uint32), *rest))
        random.setstate(states["python"])


def renew_length(trainer: Trainer, checkpoint: dict[str, Any]) -> None:
    """Let a schedule that takes its length from the run end with it, where that is longer now."""
    # Of litlab's tasks; another model may have none, or something else of this name
    schedule = getattr(trainer.lightning_module, "schedule", None)
    if schedule is None:
        return
    from litlab.optim.schedule import Schedule, missing_length

    name = missing_length(schedule.scheduler) if isinstance(schedule, Schedule) else None
    if name is None:
        return

    # Changed in the checkpoint, before Lightning loads it: the new length, the old progress
    saved = checkpoint.get("lr_schedulers", [])
    for config, state in zip(trainer.lr_scheduler_configs, saved, strict=False):
        fresh = config.scheduler.state_dict()
        if state.get(name) != fresh.get(name):
            state.update({key: value for key, value in fresh.items() if key not in PROGRESS})


# Lightning (2.6.6) does not restore what they have done: masks, batch sizes, which parameters are
# trained.
NOT_RESTORED = (BaseFinetuning, BatchSizeFinder, LearningRateFinder, ModelPruning, SpikeDetection)


def make_resumable(callbacks: list[Callback], resumes: bool) -> list[Callback]:
    """Return the callbacks that ``trainer.callbacks`` names, as a run needs them that may be
    resumed.

    Args:
        callbacks: What the config names.
        resumes: Whether the run continues from a checkpoint.

    Raises:
        UserError: If one of them can't be resumed.
    """
    for callback in callbacks:
        if resumes and isinstance(callback, NOT_RESTORED):
            raise UserError(
                f"trainer.callbacks: checkpoints don't hold what {type(callback).__name__} has "
                "done, so the run can't be resumed; start a new one from its weights with "
                "--init_from, or leave the callback out"
            )
    # Exactly this class: a subclass may have been made to be resumed
    return [
        AccumulationSchedule(callback.scheduling)
        if type(callback) is GradientAccumulationScheduler
        else callback
        for callback in callbacks
    ]


class AccumulationSchedule(GradientAccumulationScheduler):
    """Lightning's ``GradientAccumulationScheduler``, also in an epoch that is resumed.

    Lightning (2.6.6) sets the number of batches in ``on_train_epoch_start``, which is not called
    there: the rest of the epoch would have a step for every batch.
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # In an epoch that begins it is called twice, which changes nothing
        super().on_train_start(trainer, pl_module)
        self.on_train_epoch_start(trainer)

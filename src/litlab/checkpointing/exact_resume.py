"""What a checkpoint needs beside Lightning's own, so that a resumed run has the numbers of one that never stopped."""

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from lightning.pytorch.utilities import CombinedLoader, rank_zero_info
from torch import Generator
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from litlab.checkpointing.io import path_in
from litlab.checkpointing.optimizer_changes import group_names, match_names
from litlab.checkpointing.resumed_schedule import (
    check_schedule,
    continue_schedule,
    plateau_due,
    renew_plateaus,
    run_length,
    step_plateaus,
)
from litlab.errors import UserError
from litlab.util.splitmix import GOLDEN, mix

# In the checkpoint:
KEY = "exact_resume"  # a list with what each process has
ORDER = "parameter_names"  # of each optimizer's groups
LENGTH = "run_length"
PLATEAU = "plateau_due"  # "epoch" or "step", where ReduceLROnPlateau was still to be stepped for it

RANDOM = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
EPOCH_START = 2**40 - 1  # in the place of a batch


class ExactResume(Callback):
    """Let a resumed run go on with the random numbers, sums and gradients that it was interrupted with.

    - Before each training batch torch's generators, of the CPU and of the device, are seeded from (seed, process,
      epoch, batch). Dropout then depends on nothing that happened before: no plot, no validation, no first call of a
      compiled network. Before each validation numpy's and Python's are seeded as well.
      So is, at the start of an epoch, the order in which a plain loader shuffles.
    - The state of all generators is in the checkpoint, for what is drawn between two steps (by a data set, or in
      ``on_after_batch_transfer``), and for numpy's and Python's, which take several times as long to seed as torch's.
      Workers of a loader have their own: what they draw has to depend on seed, epoch and index.
    - So is what the model has summed up of the epoch (``epoch_sums``, where it has that), of every process.
    - So are the gradients, where it is written between the batches of an accumulation: in a validation, or after so
      many minutes. Only strategies that shard them can't; there let checkpoints be written after whole steps.
    - A checkpoint of the last batch before a validation, or before the end of an epoch, says so: Lightning (2.6.6) goes
      on from it as if they were over, and nothing of them is logged.
    - So are the metrics that callbacks and ReduceLROnPlateau watch. Lightning steps the latter after all checkpoints of
      an epoch, and not at the end of an epoch that is resumed within: it is stepped once in either case.
    - The optimizer's state is matched by names (`match_names`), and schedules end with the run (`continue_schedule`).
    - Early stopping that had ended the run ends it again, and best checkpoints are known again in a folder whose path
      is written otherwise now.

    Loggers are flushed before each checkpoint, so that a killed run has logged all that a resumed one won't log again.
    Within an epoch a run goes on with as many processes as before, from the end of an epoch with any number.

    Raises:
        UserError: In a fit that goes on within an epoch, if the number of processes is another.
    """

    def __init__(self) -> None:
        self._generators: dict[str, Generator] = {}  # by kind of device
        self._order = Generator()  # of plain loaders
        self._seed = 0  # of this process
        self._checkpoint: dict[str, Any] = {}  # until training starts
        self._epoch_ended = False
        self._knows_metrics = False  # older checkpoints hold none

    # Random numbers

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find the generators and the seed; the optimizers are there now, and not restored yet."""
        if self._checkpoint:
            match_names(trainer, pl_module, self._checkpoint, self._checkpoint.get(ORDER, []))
            renew_plateaus(trainer, pl_module, self._checkpoint)
        device = trainer.strategy.root_device
        self._generators = {"cpu": torch.default_generator}
        if device.type == "cuda":
            self._generators["cuda"] = torch.cuda.default_generators[device.index]
        elif device.type == "mps":
            self._generators["mps"] = torch.mps._get_default_mps_generator()
        seed = int(os.environ.get("PL_GLOBAL_SEED") or torch.initial_seed())  # what seed_everything was given
        self._seed = _next(_next(seed) + trainer.global_rank)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Note that the epoch before is complete; seed plain loaders that shuffle: they draw their order after this."""
        self._epoch_ended = False
        loaders = CombinedLoader(trainer.train_dataloader).flattened if trainer.train_dataloader is not None else []
        for sampler in (getattr(loader, "sampler", None) for loader in loaders):
            if isinstance(sampler, RANDOM) and sampler.generator is None:
                sampler.generator = self._order
        self._order.manual_seed(self._seed_of(trainer.current_epoch, EPOCH_START))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let Lightning step ReduceLROnPlateau at the end of an epoch that was resumed: the metrics are there."""
        self._epoch_ended = True
        if self._knows_metrics:
            trainer.fit_loop.restarting = False

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Seed torch's generators."""
        seed = self._seed_of(trainer.current_epoch, 2 * batch_idx)
        for generator in self._generators.values():
            generator.manual_seed(seed)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Seed all generators: a validation that is interrupted begins again."""
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            seed = self._seed_of(trainer.current_epoch, 2 * trainer.fit_loop.batch_idx + 1)
            for generator in self._generators.values():
                generator.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)

    def _seed_of(self, epoch: int, place: int) -> int:
        return _next(self._seed + (epoch << 40) + place)

    # The checkpoint

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add what each process has; every process calls this."""
        for logger in trainer.loggers:
            logger.save()
        if trainer.state.fn != "fit":
            return
        sums = pl_module.epoch_sums() if hasattr(pl_module, "epoch_sums") else []  # pyright: ignore[reportCallIssue]
        part = {"sums": [value.cpu() for value in sums], "random": self._random_state(), "gradients": {}}
        part["metrics"] = {name: value.cpu() for name, value in trainer.callback_metrics.items()}
        whole = isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy)
        if whole and trainer.fit_loop.epoch_loop._should_accumulate():
            part["gradients"] = {name: p.grad.cpu() for name, p in pl_module.named_parameters() if p.grad is not None}
        parts = [part] * trainer.world_size
        if trainer.world_size > 1:
            torch.distributed.all_gather_object(parts, part)
        checkpoint[KEY] = parts
        checkpoint[ORDER] = group_names(trainer, pl_module)
        checkpoint[LENGTH] = run_length(trainer)
        checkpoint[PLATEAU] = plateau_due(trainer, self._epoch_ended)
        _end_batch(trainer, checkpoint["loops"]["fit_loop"])

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Take it, and refuse another number of processes within an epoch."""
        if trainer.state.fn != "fit":
            return
        self._checkpoint = checkpoint
        if trainer.optimizers:  # with strategies that load after they have sharded, and match names themselves
            renew_plateaus(trainer, pl_module, checkpoint)
        parts = checkpoint.get(KEY, [])
        batches = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]
        within = batches["current"]["ready"] > 0 and not batches["is_last_batch"]
        if parts and within and len(parts) != trainer.world_size:
            raise UserError(
                f"trainer.devices: the run was interrupted within an epoch, which {len(parts)} processes had "
                f"shared; {trainer.world_size} can't go on with it: take {len(parts)}."
            )
        for callback in trainer.checkpoint_callbacks:
            state = checkpoint.get("callbacks", {}).get(callback.state_key)
            if state and isinstance(callback, ModelCheckpoint):
                _find_again(callback, state, str(trainer.ckpt_path))
        for callback in trainer.early_stopping_callbacks:
            if state := checkpoint.get("callbacks", {}).get(callback.state_key):
                state["patience"] = callback.patience  # it is a setting: that of this command holds

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Hand it out, now that Lightning has restored the rest."""
        checkpoint, self._checkpoint = self._checkpoint, {}
        if checkpoint:
            saved = {name: checkpoint.get(name) or {} for name in (LENGTH, "hyper_parameters")}
            continue_schedule(trainer, pl_module, saved)
        check_schedule(trainer)
        parts = checkpoint.get(KEY, [])
        if not parts:
            return
        own = parts[trainer.global_rank : trainer.global_rank + 1]
        if len(parts) != trainer.world_size:
            own = parts if trainer.is_global_zero else []  # sums may be added up anywhere
        if hasattr(pl_module, "load_epoch_sums"):
            pl_module.load_epoch_sums([part["sums"] for part in own])  # pyright: ignore[reportCallIssue]
        if len(parts) == trainer.world_size:
            self._restore(own[0], pl_module)
        # The property hands out the dictionary that Lightning collects the metrics in.
        metrics = (own or parts)[0].get("metrics")
        self._knows_metrics = metrics is not None
        trainer.callback_metrics.update({name: value.to(pl_module.device) for name, value in (metrics or {}).items()})
        if due := checkpoint.get(PLATEAU):
            step_plateaus(trainer, pl_module, due)
        if any(callback.wait_count >= callback.patience for callback in trainer.early_stopping_callbacks):
            rank_zero_info("Early stopping had ended this run: there is nothing to go on with.")
            trainer.should_stop = True

    def _random_state(self) -> dict[str, Any]:
        kind, words, *rest = np.random.get_state(legacy=True)
        states = {device: generator.get_state() for device, generator in self._generators.items()}
        return {**states, "numpy": [kind, list(map(int, words)), *rest], "python": random.getstate()}

    def _restore(self, part: dict[str, Any], pl_module: LightningModule) -> None:
        states = part["random"]
        for device, generator in self._generators.items():
            if device in states:
                generator.set_state(states[device])
        kind, words, *rest = states["numpy"]
        np.random.set_state((kind, np.array(words, dtype=np.uint32), *rest))
        random.setstate(states["python"])
        for name, parameter in pl_module.named_parameters():
            if name in part["gradients"]:
                parameter.grad = part["gradients"][name].to(parameter.device)


def first_step_logged_again(checkpoint: dict[str, Any]) -> int:
    """The optimizer step from which on a run that goes on from a checkpoint logs what was logged before once more."""
    within_step = any(part["gradients"] for part in checkpoint.get(KEY, []))
    return checkpoint["global_step"] + within_step


def _next(state: int) -> int:
    return mix((state + GOLDEN) % 2**64)


def _end_batch(trainer: Trainer, state: dict[str, Any]) -> None:
    """Makes of the loops' state within ``on_train_batch_end`` the one after it, if a validation or nothing follows."""
    loop: Any = trainer.fit_loop.epoch_loop
    progress, batches = loop.batch_progress, trainer.fit_loop._data_fetcher
    if batches is None or progress.total.completed == progress.total.processed:
        return
    validates = loop._should_check_val_fx(batches)
    if not validates and not progress.is_last_batch:
        return
    trained = state["epoch_loop.batch_progress"]
    for counts in (trained["total"], trained["current"]):
        counts["completed"] = counts["processed"]
    if validates:  # a validation whose first batch had begun is begun again
        evaluated = state["epoch_loop.val_loop.batch_progress"]
        evaluated["total"] |= dict.fromkeys(("ready", "started"), evaluated["total"]["completed"] + 1)
        evaluated["current"] = dict.fromkeys(evaluated["current"], 0)
        evaluated["is_last_batch"] = False
    else:  # Lightning counts the step in the logs after this hook
        state["epoch_loop.state_dict"]["_batches_that_stepped"] += 1


def _find_again(callback: ModelCheckpoint, state: dict[str, Any], resumed: str) -> None:
    """Gives the checkpoints that the state names their paths of now, if the one that is resumed lies beside them."""
    folder = str(callback.dirpath)
    if Path(resumed).resolve().parent != Path(folder).resolve():
        return

    def path_now(path: str) -> str:
        return path and path_in(folder, path, state_folder)

    state_folder, state["dirpath"] = state["dirpath"], callback.dirpath
    for name in ("best_model_path", "kth_best_model_path", "last_model_path"):
        state[name] = path_now(state[name])
    state["best_k_models"] = {path_now(path): score for path, score in state["best_k_models"].items()}

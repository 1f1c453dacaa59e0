"""What a checkpoint needs besides Lightning's own, so that a resumed run gets the numbers of one that never stopped."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities import CombinedLoader, rank_zero_info
from torch import Generator
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

from litlab.checkpointing.callback import relocate
from litlab.checkpointing.internals import end_restart, is_accumulating, is_last_batch
from litlab.checkpointing.loop_state import (
    complete_batch,
    count_restarted_validation_once,
    is_within_epoch,
    reopen_epoch,
)
from litlab.checkpointing.optimizer_changes import group_names, match_names
from litlab.checkpointing.random_state import RandomState
from litlab.checkpointing.resumed_schedule import (
    check_schedule,
    pending_plateau_step,
    renew_plateaus,
    run_length,
    step_plateaus,
    stretch_schedule,
)
from litlab.errors import UserError
from litlab.util.strategies import data_ranks, shards

# In the checkpoint:
KEY = "exact_resume"  # a list with what each process has
NAMES = "parameter_names"  # of each optimizer's groups
LENGTH = "run_length"
PLATEAU = "plateau_due"  # "epoch" or "step": the interval that ReduceLROnPlateau was still to be stepped for

RANDOM = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
EPOCH_START = 2**40 - 1  # in the place of a batch


class ExactResume(Callback):
    """Let a resumed run continue with the random numbers, sums and gradients that it was interrupted with.

    - Before each training batch torch's generators are seeded from (seed, rank, epoch, batch), so that dropout depends
      on nothing that happened before: a plot, a validation, the first call of a compiled network. Before each
      validation numpy's and Python's are seeded as well, and at the start of an epoch the order in which a plain loader
      shuffles.
    - The state of all generators is in the checkpoint, for what is drawn between two steps (by a dataset, or in
      ``on_after_batch_transfer``), and for numpy's and Python's, which take several times as long to seed as torch's.
      Workers of a loader have their own: what they draw has to depend on seed, epoch and index.
    - So are the sums that the model keeps over an epoch (``epoch_sums``, where it has that), of every process.
    - So are the gradients, where the checkpoint is written between the batches of an accumulation. Only strategies that
      shard them can't; there let checkpoints be written after complete steps.
    - So are the metrics that callbacks and ReduceLROnPlateau monitor. Lightning (2.6.6) steps the latter after all
      checkpoints of an epoch, and not at the end of an epoch that is resumed midway: it is stepped once in either case.
    - The optimizer's state is matched by names (`match_names`), and schedules end with the run (`stretch_schedule`).
    - Early stopping that had ended the run ends it again, and best checkpoints are found in a folder that was moved.

    Within an epoch a run continues if as many processes share the data as before (those that divide layers among them
    count as one), from the end of an epoch on any number.

    Raises:
        UserError: In a fit that continues within an epoch, if the number of processes that share the data is another,
            or the strategy shards gradients that were whole.
    """

    def __init__(self) -> None:
        self._random: RandomState | None = None  # once the fit has started
        self._order = Generator()  # of plain loaders
        self._checkpoint: dict[str, Any] = {}  # until training starts
        self._epoch_ended = False
        self._sums_of_cut: list[torch.Tensor] | None = None  # of an epoch that `max_steps` has cut short
        self._has_metrics = False  # of the epoch that is resumed; a checkpoint of plain Lightning holds none

    # Random numbers

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Find the generators; the optimizers exist now, and are not restored yet."""
        if self._checkpoint:
            match_names(trainer, pl_module, self._checkpoint, self._checkpoint.get(NAMES, []))
            renew_plateaus(trainer, pl_module, self._checkpoint)
        self._random, self._sums_of_cut = RandomState(trainer), None

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Seed plain loaders that shuffle: they draw their order after this."""
        assert self._random is not None
        self._epoch_ended = False
        loaders = CombinedLoader(trainer.train_dataloader).flattened if trainer.train_dataloader is not None else []
        for sampler in (getattr(loader, "sampler", None) for loader in loaders):
            if isinstance(sampler, RANDOM) and sampler.generator is None:
                sampler.generator = self._order
        self._order.manual_seed(self._random.seed_of(trainer.current_epoch, EPOCH_START))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let Lightning step ReduceLROnPlateau at the end of an epoch that was resumed: the metrics are there."""
        self._epoch_ended = True
        if not is_last_batch(trainer):  # the model is about to begin new sums, but a resumed run goes on with these
            self._sums_of_cut = [value.clone() for value in _sums(pl_module)]
        if self._has_metrics:
            end_restart(trainer)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Seed torch's generators.

        Restoring their state once, as the run is resumed, would not do: what only one of the two runs draws shifts all
        that follows, as the warm-up of a compiled network does, or another iteration over a loader.
        """
        assert self._random is not None
        self._random.seed_torch(self._random.seed_of(trainer.current_epoch, 2 * batch_idx))

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Seed all generators: a validation that is interrupted is repeated."""
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            assert self._random is not None
            count_restarted_validation_once(trainer)
            self._random.seed_all(self._random.seed_of(trainer.current_epoch, 2 * trainer.fit_loop.batch_idx + 1))

    # The checkpoint

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add what each process has; every process calls this."""
        if trainer.state.fn != "fit":
            return
        self._random = self._random or RandomState(trainer)  # Lightning's finders save before `on_fit_start`
        sums = _sums(pl_module) if self._sums_of_cut is None else self._sums_of_cut
        gradients = {}
        if not shards(trainer.strategy) and is_accumulating(trainer):
            gradients = {name: p.grad.cpu() for name, p in pl_module.named_parameters() if p.grad is not None}
        part = {
            "data_rank": data_ranks(trainer)["rank"],
            "sums": [value.cpu() for value in sums],
            "random": self._random.state(),
            "gradients": gradients,
            "metrics": {name: value.cpu() for name, value in trainer.callback_metrics.items()},
        }
        parts = [part] * trainer.world_size
        if trainer.world_size > 1:
            torch.distributed.all_gather_object(parts, part)
        checkpoint[KEY] = parts
        checkpoint[NAMES] = group_names(trainer, pl_module)
        checkpoint[LENGTH] = run_length(trainer)
        checkpoint[PLATEAU] = pending_plateau_step(trainer, self._epoch_ended)
        complete_batch(trainer, checkpoint["loops"]["fit_loop"])
        reopen_epoch(trainer, checkpoint["loops"]["fit_loop"])

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Keep it until training starts; refuse another number of processes within an epoch."""
        if trainer.state.fn != "fit":
            return
        self._checkpoint = checkpoint
        if trainer.optimizers:  # with strategies that load after they have sharded
            match_names(trainer, pl_module, checkpoint, checkpoint.get(NAMES, []))
            renew_plateaus(trainer, pl_module, checkpoint)
        shares, now = _by_data_rank(checkpoint.get(KEY, [])), data_ranks(trainer)["world_size"]
        if shares and is_within_epoch(checkpoint) and len(shares) != now:
            raise UserError(
                f"trainer.devices: the run was interrupted within an epoch that {len(shares)} data-parallel processes "
                f"shared, and trainer.strategy makes {now} of the devices here; choose them so that there are "
                f"{len(shares)}."
            )
        if shards(trainer.strategy) and any(part["gradients"] for part in shares.values()):
            raise UserError(
                "trainer.strategy: the run was interrupted within an accumulation of gradients, which "
                f"{type(trainer.strategy).__name__} can't continue; use the strategy that it had."
            )
        states = checkpoint.get("callbacks", {})
        for callback in trainer.checkpoint_callbacks:
            if isinstance(callback, ModelCheckpoint) and (state := states.get(callback.state_key)):
                relocate(callback, state, str(trainer.ckpt_path))
        for callback in trainer.early_stopping_callbacks:
            if state := states.get(callback.state_key):
                state["patience"] = callback.patience  # a setting: the one of this command counts

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Restore what the checkpoint holds, now that Lightning has restored the rest."""
        checkpoint, self._checkpoint = self._checkpoint, {}
        if checkpoint:
            saved = {name: checkpoint.get(name) or {} for name in (LENGTH, "hyper_parameters")}
            stretch_schedule(trainer, pl_module, saved)
        check_schedule(trainer)
        parts = checkpoint.get(KEY, [])
        if not parts:
            return
        shares, mine = _by_data_rank(parts), data_ranks(trainer)
        if len(shares) == mine["world_size"]:
            own = [parts[trainer.global_rank] if len(parts) == trainer.world_size else shares[mine["rank"]]]
            self._restore(own[0], pl_module)
        else:
            own = list(shares.values()) if mine["rank"] == 0 else []  # sums may be added up on any rank
        if hasattr(pl_module, "load_epoch_sums"):
            pl_module.load_epoch_sums([part["sums"] for part in own])  # pyright: ignore[reportCallIssue]
        self._has_metrics = True
        # The property returns the dictionary that Lightning collects the metrics in.
        metrics = (own or parts)[0]["metrics"]
        trainer.callback_metrics.update({name: value.to(pl_module.device) for name, value in metrics.items()})
        if interval := checkpoint.get(PLATEAU):
            step_plateaus(trainer, pl_module, interval)
        if any(callback.wait_count >= callback.patience for callback in trainer.early_stopping_callbacks):
            rank_zero_info("Early stopping had ended this run: there is nothing left to train.")
            trainer.should_stop = True

    def _restore(self, part: dict[str, Any], pl_module: LightningModule) -> None:
        assert self._random is not None
        self._random.restore(part["random"])
        for name, parameter in pl_module.named_parameters():
            if name in part["gradients"]:
                parameter.grad = part["gradients"][name].to(parameter.device)


def _by_data_rank(parts: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Return one of the processes' parts for each share of the data; older checkpoints have one process for each."""
    return {part.get("data_rank", number): part for number, part in reversed([*enumerate(parts)])}


def _sums(module: LightningModule) -> list[torch.Tensor]:
    return module.epoch_sums() if hasattr(module, "epoch_sums") else []  # pyright: ignore[reportCallIssue]


def first_step_logged_again(checkpoint: dict[str, Any]) -> int:
    """Return the first optimizer step that a resumed run logs again, though it was logged before."""
    within_step = any(part["gradients"] for part in checkpoint.get(KEY, []))
    return checkpoint["global_step"] + within_step

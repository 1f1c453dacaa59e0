"""The learning-rate schedule of a resumed run: at the same fraction of its length, whatever the length is now."""

import math
import warnings
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR, PolynomialLR, ReduceLROnPlateau

from litlab.checkpointing.internals import is_accumulating, is_last_batch, validation_follows
from litlab.errors import UserError, first_line
from litlab.optim import Chain, Schedule, Sequence, WarmupDecay
from litlab.tasks.base import ExperimentModule
from litlab.util.optimizer_steps import accumulation, steps_of_epochs, steps_of_run

OF_THE_RATE = ("optimizer", "schedule", "param_groups")  # settings of the model
PROGRESS = ("best", "num_bad_epochs", "cooldown_counter", "last_epoch", "_last_lr")  # of ReduceLROnPlateau


def run_length(trainer: Trainer) -> dict[str, Any]:
    """Return what determines the number of optimizer steps of a run; checkpoints keep it."""
    schedule, batches = accumulation(trainer), trainer.num_training_batches
    length: dict[str, Any] = {"steps_per_epoch": steps_of_epochs(trainer, batches, 0, 1)}
    if len(schedule.epochs) > 1:
        length["accumulation"] = dict(schedule.scheduling)
    return {**length, "epochs": trainer.max_epochs, "steps": trainer.max_steps}


# ReduceLROnPlateau


def pending_plateau_step(trainer: Trainer, epoch_ended: bool) -> str | None:
    """Return the interval that ReduceLROnPlateau is stepped for after this checkpoint, but not in a resumed run.

    Args:
        trainer: It is writing a checkpoint.
        epoch_ended: Whether ``on_train_epoch_end`` was called, and ``on_train_epoch_start`` not since.

    Returns:
        "epoch", "step" or None.
    """
    epochs: Any = trainer.fit_loop.epoch_progress.current
    batches: Any = trainer.fit_loop.epoch_loop.batch_progress.total
    if epoch_ended and epochs.processed > epochs.completed and is_last_batch(trainer):
        return "epoch"
    if batches.completed < batches.processed and not is_accumulating(trainer):
        return None if validation_follows(trainer) else "step"  # a resumed run begins with that validation
    return None


def step_plateaus(trainer: Trainer, module: LightningModule, interval: str) -> None:
    """Step ReduceLROnPlateau as Lightning would have done after the checkpoint, with the metrics from then."""
    epochs: Any = trainer.fit_loop.epoch_progress.current
    batches: Any = trainer.fit_loop.epoch_loop.batch_progress.current
    done = epochs.processed if interval == "epoch" else batches.ready
    for config in trainer.lr_scheduler_configs:
        if config.reduce_on_plateau and config.interval == interval and done % config.frequency == 0:
            module.lr_scheduler_step(config.scheduler, trainer.callback_metrics[str(config.monitor)])


def renew_plateaus(trainer: Trainer, module: LightningModule, checkpoint: dict[str, Any]) -> None:
    """Apply the settings of ReduceLROnPlateau as it is configured now to the state that a checkpoint has of it."""
    then, now = checkpoint.get("hyper_parameters", {}).get("schedule"), module.hparams.get("schedule")
    monitors = [schedule.get("monitor") for schedule in (then, now) if isinstance(schedule, dict)]
    another = len(monitors) == 2 and monitors[0] != monitors[1]
    for config, state in zip(trainer.lr_scheduler_configs, checkpoint["lr_schedulers"], strict=False):
        if isinstance(config.scheduler, ReduceLROnPlateau):
            fresh = config.scheduler.state_dict()
            if another or fresh["mode"] != state["mode"]:  # the best so far is of another metric
                state.update({name: fresh[name] for name in ("best", "num_bad_epochs")})
            state.update({name: value for name, value in fresh.items() if name not in PROGRESS})


# Schedules with a length


def stretch_schedule(trainer: Trainer, module: LightningModule, saved: dict[str, Any]) -> None:
    """Make the schedule of a resumed run end with it, if its length or its settings have changed.

    A schedule that takes its length from the run is stretched: its rate becomes what it would be here, had the run been
    as it is now from its beginning. Other schedules stay where they were, with the settings of now.

    Args:
        trainer: The trainer, with everything restored that the checkpoint has.
        module: The module; only an `ExperimentModule` knows how to build its schedule again.
        saved: The checkpoint's `run_length` and hyper-parameters of the model.

    Raises:
        UserError: If callbacks have added parameter groups, which a new schedule knows nothing of.
    """
    if not isinstance(module, ExperimentModule) or module.schedule is None or len(trainer.lr_scheduler_configs) != 1:
        return
    config, schedule = trainer.lr_scheduler_configs[0], module.schedule
    live = config.scheduler
    if config.reduce_on_plateau or not isinstance(live, LRScheduler):
        return  # it has no length
    then, now = saved["hyper_parameters"], dict(module.hparams)
    # What Python code passes as objects is in neither.
    differ = any(then[name] != now[name] for name in OF_THE_RATE if name in then and name in now)
    if saved["run_length"] == run_length(trainer) and not differ:
        return
    steps, left = steps_of_run(trainer), _left(trainer, schedule.interval, schedule.frequency)
    name = schedule.missing_length()
    if name is not None and schedule.interval == "step":
        steps = max(steps, left * schedule.frequency)  # it can be one more where the frequency does not divide them
    optimizer = module.new_optimizer()
    unscheduled = [dict(group) for group in optimizer.param_groups]
    fresh: Any = schedule.configure(optimizer, steps, trainer.max_epochs)["scheduler"]
    if len(unscheduled) != len(live.optimizer.param_groups):
        raise UserError(
            f"model.schedule: the run's optimizer has {len(live.optimizer.param_groups)} parameter groups, a new one "
            f"{len(unscheduled)}, so {type(live).__name__} can't continue with other settings or another length; leave "
            "them as they were."
        )
    position = live.last_epoch
    if name is not None and math.isfinite(left):
        length, before = getattr(fresh, name), (position, getattr(live, name, None))
        position = max(0, length - int(left))
        if before != (position, length):
            rank_zero_info(
                f"model.schedule: {type(live).__name__} is at step {position} of {length} now (it was at "
                f"{before[0]} of {before[1]}): the length of the run has changed, and the schedule still ends with it."
            )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step\\(\\)` before")
        try:
            for _ in range(position):
                fresh.step()
        except ValueError as error:  # OneCycleLR, where its own length is shorter than what is done
            raise UserError(f"model.schedule.scheduler: {first_line(error)}; set a longer length, or null.") from error
    live.load_state_dict(fresh.state_dict())
    for group, new, old in zip(live.optimizer.param_groups, optimizer.param_groups, unscheduled, strict=True):
        # What the schedule sets: the rate, and momentum with OneCycleLR.
        group.update({key: new[key] for key in new if key not in old or key == "lr" or new[key] != old[key]})


def check_schedule(trainer: Trainer) -> None:
    """Refuse a schedule that would end before the run does, and one that is stepped before its metric is logged.

    Raises:
        UserError: If torch or Lightning would refuse a step, or all further steps would have a rate of 0.
    """
    schedule = getattr(trainer.lightning_module, "schedule", None)
    for config in trainer.lr_scheduler_configs:
        scheduler: Any = config.scheduler
        frequency = schedule.frequency if isinstance(schedule, Schedule) else config.frequency
        if config.reduce_on_plateau:
            _check_monitor(trainer, str(config.monitor), config.interval, frequency)
            continue
        if isinstance(scheduler, OneCycleLR):
            end, then = scheduler.total_steps, "torch would refuse the next one"
        elif isinstance(scheduler, WarmupDecay) and scheduler.final == 0:
            end, then = scheduler.total_steps, "the rest would have a rate of 0"
        elif isinstance(scheduler, PolynomialLR):
            end, then = scheduler.total_iters, "the rest would have a rate of 0"
        elif isinstance(scheduler, Sequence | Chain):
            end, then = scheduler.total_steps, "its parts would go on past their ends"
        else:
            continue
        steps = scheduler.last_epoch + _left(trainer, config.interval, frequency)
        if math.isfinite(steps) and steps > end:
            raise UserError(
                f"model.schedule.scheduler: {type(scheduler).__name__} ends after {end} steps, and this run steps it "
                f"{int(steps)} times (interval: {config.interval}, frequency: {frequency}), so {then}; set its length "
                "to null to take the run's."
            )


def _check_monitor(trainer: Trainer, monitor: str, interval: str, frequency: int) -> None:
    every, batches = trainer.check_val_every_n_epoch, trainer.val_check_batch
    if not monitor.startswith("val/") or not trainer.enable_validation or every is None or batches is None:
        return
    if interval == "epoch" and frequency < every:
        raise UserError(
            f"model.schedule.frequency: it is {frequency}, but {monitor} is logged every {every} epochs "
            f"(trainer.check_val_every_n_epoch); set it to {every}."
        )
    if interval == "step" and frequency < min(batches, trainer.num_training_batches):
        raise UserError(
            f"model.schedule: ReduceLROnPlateau would be stepped after {frequency} batches, but {monitor} is not "
            "logged before the first validation; set interval: epoch."
        )


def _left(trainer: Trainer, interval: str, frequency: int) -> float:
    """Return how often a schedule is still stepped, from the beginning or the checkpoint to the end of the run."""
    progress: Any = trainer.fit_loop.epoch_progress.current
    batches: Any = trainer.fit_loop.epoch_loop.batch_progress.current
    epochs = trainer.max_epochs if trainer.max_epochs is not None and trainer.max_epochs >= 0 else float("inf")
    within = progress.started > progress.processed
    over = within and batches.ready >= trainer.num_training_batches  # only the epoch's end is missing
    done = progress.processed + over
    if interval == "epoch":
        return epochs // frequency - done // frequency
    left = steps_of_epochs(trainer, trainer.num_training_batches, done, epochs)
    if within and not over:
        left -= batches.ready // accumulation(trainer).get_accumulate_grad_batches(done)
    if trainer.max_steps >= 0:
        left = min(left, trainer.max_steps - trainer.global_step)
    return (trainer.global_step + left) // frequency - trainer.global_step // frequency

"""Which settings of a run a command changes, and whether its checkpoint can be used with them."""

from typing import Any

from litlab.checkpointing.resume import is_within_epoch
from litlab.errors import UserError
from litlab.runs.compare import as_text, differences, flat_config
from litlab.runs.folder import RunFolder, read_json

# Settings of a command, not of the experiment.
OF_THE_COMMAND = (
    "resume", "run", "check", "plan", "plan_memory", "input", "output", "ckpt_path", "return_predictions", "init_from",
    "allow_modules",
)  # fmt: skip
OF_THE_EPOCH = ("trainer.accumulate_grad_batches", "trainer.limit_train_batches", "trainer.overfit_batches")
WITHOUT_EFFECT = (  # on the batches, so these may change even within an epoch
    "data.path", "data.test_path", "data.cache_dir",
    "data.num_workers", "data.pin_memory", "data.persistent_workers", "data.prefetch_factor",
)  # fmt: skip
BATCH = ("data.batch_size", "data.tokens_per_batch")

Changes = dict[str, list[Any]]  # by key: the value in the run and the value now


class Finished(Exception):
    """There is nothing left to do for a run."""

    def __init__(self, run: RunFolder) -> None:
        metrics = read_json(run.metrics)
        super().__init__(
            f"{run.name} is finished: {metrics.get('epochs')} epochs, {metrics.get('steps')} steps. Train it longer "
            f"with --resume {run.path} --trainer.max_epochs N."
        )


def changed_settings(saved: dict[str, Any], config: dict[str, Any]) -> Changes:
    """Return the settings that differ from those of the run, by dotted key.

    Args:
        saved: The config of the run.
        config: The config of the command.
    """
    then, now = (
        {key: _plain(key, value) for key, value in flat_config(one).items() if key not in OF_THE_COMMAND}
        for one in (saved, config)
    )
    return differences([then, dict.fromkeys(then) | now])


def _plain(key: str, value: Any) -> Any:
    """Return a value as a config has it; on a command line the number of devices is a text."""
    is_number = key == "trainer.devices" and isinstance(value, str) and value.isdecimal()
    return int(value) if is_number else value


def describe(changes: Changes) -> str:
    """Return the changes in one line."""
    return ", ".join(f"{key}: {as_text(then)} -> {as_text(now)}" for key, (then, now) in changes.items())


def check_resumption(name: str, checkpoint: dict[str, Any], changes: Changes, config: dict[str, Any]) -> None:
    """Refuse settings that the training can't continue with.

    Args:
        name: The run, for the message.
        checkpoint: The checkpoint to resume from.
        changes: The settings that are not the run's.
        config: The config of the command.

    Raises:
        UserError: If the run can't be resumed with these settings.
    """
    for key in ("model", "model.optimizer", "model.schedule.scheduler", "data"):
        if key in changes:
            raise UserError(
                f"{name} can't be resumed with another class of {key} ({describe({key: changes[key]})}); leave it out, "
                "or start a new run from its weights with --init_from."
            )
    epochs, steps = _progress(checkpoint)
    for key, done in (("max_epochs", epochs), ("max_steps", steps)):
        most = (config.get("trainer") or {}).get(key)
        if most is not None and 0 <= most < done:
            raise UserError(f"trainer.{key}: {most} is too low, as {name} has done {done} {key.removeprefix('max_')}.")
    moved = {
        key: value
        for key, value in changes.items()
        if key in ("seed_everything", *OF_THE_EPOCH) or (key.startswith("data.") and key not in WITHOUT_EFFECT)
    }
    if moved and is_within_epoch(checkpoint):
        done = checkpoint["loops"]["fit_loop"]["epoch_loop.batch_progress"]["current"]["ready"]
        raise UserError(
            f"{name} continues within epoch {epochs + 1}, after batch {done}, and its other batches depend on what was "
            f"changed ({describe(moved)}); leave it out until the epoch is complete."
        )


def consequences(changes: Changes) -> list[str]:
    """Return what changed settings of a resumed run do to the rest of its training, a line for each kind.

    Args:
        changes: The settings that are not the run's.
    """
    here = {key for key in changes if key not in WITHOUT_EFFECT}
    seeds = here & {"seed_everything", "data.seed"}
    sizes = here & {*OF_THE_EPOCH, *BATCH, "trainer.devices", "trainer.num_nodes"}
    data = {key for key in here if key.startswith("data.")} - seeds - sizes
    kinds = {
        "the order of the batches and all random numbers differ from here on; the weights and the split into training "
        "and validation stay.": seeds,
        "the number of steps per epoch, or of samples per step, differs from here on. model.optimizer.lr stays as it "
        "is; a schedule that takes its length from the run still ends with it.": sizes,
        "the batches differ from here on; metrics before and after may not be comparable, and the best checkpoint so "
        "far was chosen by the old ones.": data,
    }
    return [f"{', '.join(sorted(keys))}: {what}" for what, keys in kinds.items() if keys]


def other_results(changes: Changes) -> str:
    """Return, in one line, the changes after which results are not the run's any more; empty if there are none."""
    ours = {
        key: change
        for key, change in changes.items()
        if key.partition(".")[0] in ("model", "data") or key.startswith(("trainer.limit_", "trainer.fast_dev_run"))
    }
    harmless = (*WITHOUT_EFFECT, "data.batch_size")
    return describe({key: change for key, change in ours.items() if key not in harmless})


def is_complete(checkpoint: dict[str, Any], config: dict[str, Any]) -> bool:
    """Return whether a checkpoint holds all epochs or steps that a config asks for."""
    trainer = config.get("trainer") or {}
    limits = trainer.get("max_epochs"), trainer.get("max_steps")
    return any(
        limit is not None and 0 <= limit <= done for limit, done in zip(limits, _progress(checkpoint), strict=True)
    )


def _progress(checkpoint: dict[str, Any]) -> tuple[int, int]:
    """Return the epochs and optimizer steps that are done."""
    return checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"], checkpoint["global_step"]

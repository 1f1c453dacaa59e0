"""Where callbacks put the files they write."""

from pathlib import Path

from lightning.pytorch import Trainer


def run_folder(trainer: Trainer) -> Path | None:
    """Return the folder of this run, the first logger's, made if need be; ``None`` for a run that keeps no folder.

    Without a logger, or under ``fast_dev_run``, there is no folder of the run's own, and nothing may be left in the
    working directory, which is what ``trainer.log_dir`` would then answer. Call it on every rank: the ranks agree on
    the folder by a broadcast.
    """
    if not trainer.loggers:
        return None
    log_dir = trainer.log_dir
    if log_dir is None:  # the stand-in logger of fast_dev_run
        return None
    folder = Path(log_dir)
    if trainer.is_global_zero:
        folder.mkdir(parents=True, exist_ok=True)
    return folder

"""Where callbacks put the files they write."""

from pathlib import Path

from lightning.pytorch import Trainer


def run_folder(trainer: Trainer) -> Path | None:
    """Return the folder of this run, that of the first logger, and create it; ``None`` for a run without one.

    Without a logger, or under ``fast_dev_run``, a run has no folder, and nothing may be left in the working directory,
    which ``trainer.log_dir`` then is. Call it on every rank: the folder is broadcast.
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

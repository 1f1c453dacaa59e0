"""Every private name of Lightning and torch that litlab relies on, one function for each use.

Nothing public says the same in the supported versions. ``tests/litlab/checkpointing/test_internals.py`` fails where one
of these names disappears.
"""

import csv
import os
from functools import partial
from pathlib import Path
from typing import Any

from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.loggers.csv_logs import ExperimentWriter
from torch import Generator, mps
from torch.distributed import PrefixStore, distributed_c10d  # pyright: ignore[reportPrivateImportUsage]

# Where training is


def is_accumulating(trainer: Trainer) -> bool:
    """Return whether the current batch completes no optimizer step."""
    return trainer.fit_loop._should_accumulate()


def is_last_batch(trainer: Trainer) -> bool:
    """Return whether the current batch is the last one of its epoch."""
    return trainer.fit_loop.epoch_loop._num_ready_batches_reached()


def validation_follows(trainer: Trainer) -> bool:
    """Return whether Lightning validates after the current batch."""
    fetcher = trainer.fit_loop._data_fetcher
    return fetcher is not None and trainer.fit_loop.epoch_loop._should_check_val_fx(fetcher)


def end_restart(trainer: Trainer) -> None:
    """Let the fit loop know that the epoch it has resumed is over.

    With ``max_steps``, setting its public property to False would set that of its loops to True.
    """
    trainer.fit_loop._restarting = False


# Signals


def disable_signal_handling(trainer: Trainer) -> None:
    """Keep Lightning from handling signals, and from asking all ranks for them before every batch."""
    trainer._signal_connector.register_signal_handlers = _do_nothing
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = _do_nothing


def requeue_signal(trainer: Trainer) -> int | None:
    """Return the signal that announces the end of a SLURM job, None where the job is not to be requeued."""
    environment = trainer._accelerator_connector.cluster_environment
    wanted = isinstance(environment, SLURMEnvironment) and environment.auto_requeue
    return environment.requeue_signal if wanted else None  # pyright: ignore[reportAttributeAccessIssue]


def new_store(prefix: str) -> PrefixStore:
    """Connect to the key-value store of the process group, by a connection that waits for no other."""
    return PrefixStore(prefix, distributed_c10d._get_default_store().clone())


def mps_generator() -> Generator:
    """Return the default random number generator of Apple's GPUs."""
    return mps._get_default_mps_generator()


# Loggers


def log_epoch_metrics(trainer: Trainer) -> None:
    """Log the metrics of a training epoch whose checkpoint is being written.

    Lightning does so after its last hook, hence after the checkpoint. It then only logs what has been added since.
    """
    loop, connector = trainer.fit_loop, trainer._logger_connector
    progress: Any = loop.epoch_progress.current
    at_end = trainer.training and connector._first_loop_iter is None and progress.processed > progress.completed
    if not at_end or "update_train_epoch_metrics" in vars(connector):  # logged by the checkpoint before this one
        return
    metrics = dict(connector.metrics["log"])
    loop.epoch_loop._batches_that_stepped -= 1  # the step that Lightning logs them at
    connector.log_metrics(metrics)
    loop.epoch_loop._batches_that_stepped += 1
    connector.update_train_epoch_metrics = partial(_log_rest, connector, set(metrics))


def _log_rest(connector: Any, logged: set[str]) -> None:
    del connector.update_train_epoch_metrics  # Lightning's method shows again
    connector.log_metrics({name: value for name, value in connector.metrics["log"].items() if name not in logged})
    connector.reset_results()


def append_to_csv_file(logger: CSVLogger, folder: Path) -> bool:
    """Let a CSV logger append to the ``metrics.csv`` in a folder; return False where its version names another one."""
    if logger._version is not None and Path(logger.log_dir).absolute() != folder:
        return False
    logger._version = folder.name
    logger._experiment = _AppendingWriter(logger.log_dir)
    return True


class _AppendingWriter(ExperimentWriter):
    def _check_log_dir_exists(self) -> None:  # Lightning's deletes the file
        if os.path.isfile(self.metrics_file_path):
            with open(self.metrics_file_path, newline="") as file:
                self.metrics_keys = next(csv.reader(file), [])


def _do_nothing(*_: object) -> None:
    pass


def release_averages(trainer):
    from lightning.pytorch.callbacks import WeightAveraging

    for callback in trainer.callbacks:
        if isinstance(callback, WeightAveraging):
            callback._average_model = None


def log_at_step(trainer, step):
    trainer.fit_loop.epoch_loop._batches_that_stepped = step

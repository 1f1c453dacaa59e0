"""Lightning's schedule of the gradient accumulation, which a run that is resumed within an epoch continues with."""

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import GradientAccumulationScheduler


class AccumulationSchedule(GradientAccumulationScheduler):
    """Lightning's ``GradientAccumulationScheduler``, also in an epoch that is resumed.

    Lightning (2.6.6) sets the number of batches in ``on_train_epoch_start``, which is not called there: the rest of the
    epoch would have a step for every batch. The command line puts it in the place of Lightning's.

    Args:
        scheduling: By epoch, counted from 0: the number of batches for each optimizer step from then on.
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Look whether it can work, and set the number of batches."""
        super().on_train_start(trainer, pl_module)
        self.on_train_epoch_start(trainer)

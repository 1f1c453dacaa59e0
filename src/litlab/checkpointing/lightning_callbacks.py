"""Lightning's own callbacks in a run that is resumed."""

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import (
    BaseFinetuning,
    BatchSizeFinder,
    GradientAccumulationScheduler,
    LearningRateFinder,
    ModelPruning,
    SpikeDetection,
)

from litlab.errors import UserError

# Lightning (2.6.6) does not restore what they have done: masks, batch sizes, which parameters are trained.
NOT_RESTORED = (BaseFinetuning, BatchSizeFinder, LearningRateFinder, ModelPruning, SpikeDetection)


def make_resumable(callbacks: list[Callback], resumes: bool) -> list[Callback]:
    """Return the callbacks that ``trainer.callbacks`` names, as a run needs them that may be resumed.

    Args:
        callbacks: What the config names.
        resumes: Whether the run continues from a checkpoint.

    Raises:
        UserError: If one of them can't be resumed.
    """
    for callback in callbacks:
        if resumes and isinstance(callback, NOT_RESTORED):
            raise UserError(
                f"trainer.callbacks: checkpoints don't hold what {type(callback).__name__} has done, so the run can't "
                "be resumed; start a new one from its weights with --init_from, or leave the callback out"
            )
    return [
        AccumulationSchedule(callback.scheduling) if type(callback) is GradientAccumulationScheduler else callback
        for callback in callbacks
    ]


class AccumulationSchedule(GradientAccumulationScheduler):
    """Lightning's ``GradientAccumulationScheduler``, also in an epoch that is resumed.

    Lightning (2.6.6) sets the number of batches in ``on_train_epoch_start``, which is not called there: the rest of the
    epoch would have a step for every batch.
    """

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self.on_train_epoch_start(trainer)

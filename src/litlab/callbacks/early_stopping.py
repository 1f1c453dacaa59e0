"""Stop a run whose metric gets no better."""

from typing import Any, Literal

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.callbacks.early_stopping import EarlyStoppingReason
from lightning.pytorch.utilities import rank_zero_info

from litlab.util.metrics import choose_mode


class RunEarlyStopping(EarlyStopping):
    """Lightning's EarlyStopping, which knows the direction of a metric, and is exact when a run is
    resumed.

    In a resumed run, Lightning's own forgets that it had asked for a stop.

    Args:
        monitor: Metric to watch.
        mode: Whether a lower or a higher value is better. By default, the metric's known direction.
        **options: As of Lightning's.
    """

    section = "early_stopping"  # of the config

    def __init__(
        self, monitor: str, mode: Literal["min", "max"] | None = None, **options: Any
    ) -> None:
        # A metric of the validation is looked at after each; Lightning misses it at the end of an
        # epoch without one.
        if options.get("check_on_train_epoch_end") is None and monitor.startswith(("train", "val")):
            options["check_on_train_epoch_end"] = monitor.startswith("train")
        super().__init__(monitor, mode=mode or "min", **options)
        self.configured_mode = mode

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if stage == "fit":
            mode = choose_mode("early_stopping.mode", self.configured_mode, self.monitor, pl_module)
            if mode != self.mode:
                self.mode, self.min_delta, self.best_score = mode, -self.min_delta, -self.best_score

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Ask again for the stop that a resumed run had asked for."""
        if self.stopping_reason != EarlyStoppingReason.NOT_STOPPED:
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.stopping_reason_message:
            rank_zero_info(f"early_stopping: {self.stopping_reason_message}")

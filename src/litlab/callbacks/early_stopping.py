"""Stop a run whose metric gets no better."""

from typing import Any, Literal

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.utilities import rank_zero_info

from litlab.util.metrics import choose_mode


class RunEarlyStopping(EarlyStopping):
    """Lightning's EarlyStopping, which forgets a stop before ``min_epochs`` or ``min_steps`` if the metric improves.

    Lightning (2.6.6) remembers it: a run with ``min_epochs`` stops in the epoch of a new best, and one that is resumed
    in between, where it is forgotten, trains longer. Here it is in the checkpoint.

    Args:
        monitor: Metric to watch.
        min_delta: Least change that counts as an improvement.
        patience: Checks without improvement after which the run stops.
        mode: Whether a lower or a higher value is better. Left out, it is the metric's known direction.
        **options: As of Lightning's.
    """

    def __init__(
        self,
        monitor: str,
        min_delta: float = 0.0,
        patience: int = 3,
        verbose: bool = False,
        mode: Literal["min", "max"] | None = None,
        strict: bool = True,
        check_finite: bool = True,
        stopping_threshold: float | None = None,
        divergence_threshold: float | None = None,
        check_on_train_epoch_end: bool | None = None,
        log_rank_zero_only: bool = False,
    ) -> None:
        super().__init__(
            monitor, min_delta, patience, verbose, mode or "min", strict, check_finite, stopping_threshold,
            divergence_threshold, check_on_train_epoch_end, log_rank_zero_only,
        )  # fmt: skip
        self._given_mode = mode
        self._stops = False  # whether this callback has asked for a stop

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        if stage == "fit":
            mode = choose_mode("early_stopping.mode", self._given_mode, self.monitor, pl_module)
            if mode != self.mode:
                self.mode, self.min_delta, self.best_score = mode, -self.min_delta, -self.best_score

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Ask again for the stop that a resumed run had asked for."""
        trainer.should_stop = trainer.should_stop or self._stops
        if self._stops and trainer.fit_loop.done:
            rank_zero_info("early_stopping: it had ended this run; there is nothing left to train.")

    def _run_early_stopping_check(self, trainer: Trainer) -> None:
        asked_by_others = trainer.should_stop and not self._stops
        trainer.should_stop = asked_by_others
        super()._run_early_stopping_check(trainer)
        self._stops = trainer.should_stop and not asked_by_others

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "stops": self._stops}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._stops = state_dict.get("stops", False)  # of Lightning's own it is not there

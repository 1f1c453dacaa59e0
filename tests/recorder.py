"""Loggers that note what they get, with the methods of well-known ones."""

from typing import Any
from unittest.mock import Mock

from lightning.pytorch.loggers.logger import Logger


class Quiet(Logger):
    """Notes the settings alone."""

    name = "recorder"
    version = "1"

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        self.settings = params

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        pass


class Recorder(Quiet):
    """Takes pictures and tables the way ``WandbLogger`` does."""

    def __init__(self) -> None:
        super().__init__()
        self.log_image, self.log_table = Mock(), Mock()


class RunRecorder(Quiet):
    """Takes pictures and texts the way ``MLFlowLogger`` does."""

    run_id = "r1"

    def __init__(self) -> None:
        super().__init__()
        self.experiment = Mock()

"""Loggers that note what they get, with the methods of well-known ones."""

from typing import Any

from lightning.pytorch.loggers.logger import Logger


class Recorder(Logger):
    """Takes pictures and tables the way ``WandbLogger`` does.

    Args:
        api_key: A secret, which nobody may log.
    """

    last: "Recorder"

    def __init__(self, api_key: str = "") -> None:
        super().__init__()
        type(self).last = self
        self.settings: list[dict[str, Any]] = []
        self.pictures: dict[str, Any] = {}
        self.tables: dict[str, tuple[list[str], list[list[Any]]]] = {}

    name = "recorder"
    version = "1"

    @property
    def experiment(self) -> "Recorder":
        return self

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        self.settings.append(params)

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        pass

    def log_image(self, key: str, images: list[Any], step: int | None = None) -> None:
        (self.pictures[key],) = images

    def log_table(self, key: str, columns: list[str], data: list[list[Any]], step: int | None = None) -> None:
        self.tables[key] = columns, data


class Client:
    """What of ``MlflowClient`` is used: everything belongs to a run."""

    def __init__(self) -> None:
        self.pictures: dict[str, Any] = {}
        self.texts: dict[str, str] = {}

    def log_image(self, run_id: str, image: Any, artifact_file: str) -> None:
        assert run_id == "r1"
        self.pictures[artifact_file.removesuffix(".png")] = image

    def log_text(self, run_id: str, text: str, artifact_file: str) -> None:
        assert run_id == "r1"
        self.texts[artifact_file.removesuffix(".md")] = text


class RunRecorder(Logger):
    """Takes pictures and texts the way ``MLFlowLogger`` does."""

    name = "recorder"
    version = "1"
    run_id = "r1"

    def __init__(self) -> None:
        super().__init__()
        self.client = Client()

    @property
    def experiment(self) -> Client:
        return self.client

    def log_hyperparams(self, params: dict[str, Any]) -> None:
        pass

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        pass

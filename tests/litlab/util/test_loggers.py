"""What loggers get besides numbers."""

import json
import sqlite3

import numpy as np
import pytest
import yaml
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from litlab.callbacks import Baselines, ConfusionMatrix
from litlab.util.loggers import log_file, log_image, log_settings, log_table, takes_images
from project.callbacks.forecast_plots import ForecastPlots
from project.callbacks.image_plots import ImagePlots
from project.callbacks.text_samples import TextSamples
from tests.conftest import CONFIGS
from tests.litlab.callbacks.tiny import Tiny, TinyData, TinyForecaster, TinySeries, make_trainer
from tests.project.callbacks.test_text_samples import Reader, Texts
from tests.recorder import Recorder, RunRecorder

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers")


class Compared(TinyData):
    def baselines(self):
        return {"majority": {"test/loss": 2.0}}


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    """What a test with each callback sent to a logger of each kind."""
    sent = {}
    for callback, model, data in (
        (ImagePlots(4), Tiny(), TinyData()),
        (ConfusionMatrix(), Tiny(), TinyData()),
        (TextSamples(2), Reader(), Texts()),
        (ForecastPlots(windows=1, targets=1, periods=2), TinyForecaster(), TinySeries()),
        (Baselines(), Tiny(), Compared()),
    ):
        folder, recorder, run = tmp_path_factory.mktemp("run"), Recorder(), RunRecorder()
        loggers = [TensorBoardLogger(folder, name="", version=""), CSVLogger(folder / "csv"), recorder, run]
        make_trainer(folder, logger=loggers, callbacks=[callback]).test(model, data, verbose=False)
        events = EventAccumulator(str(folder))
        events.Reload()
        sent[type(callback).__name__] = folder, recorder, run.client, events.Tags()
    return sent


@pytest.mark.parametrize(
    ("callback", "pictures", "tables"),
    [
        ("ImagePlots", {"test_images"}, set()),
        ("ConfusionMatrix", {"confusion_matrix"}, set()),
        ("TextSamples", set(), {"texts"}),
        ("ForecastPlots", {"forecasts", "error_by_step", "backtest"}, {"backtest", "forecast_metrics"}),
        ("Baselines", set(), {"baselines"}),
    ],
)
def test_every_logger_gets_what_it_takes(tested, callback, pictures, tables):
    folder, recorder, client, tags = tested[callback]
    pictures, tables = {f"test/{name}" for name in pictures}, {f"test/{name}" for name in tables}
    assert recorder.pictures.keys() == client.pictures.keys() == set(tags["images"]) == pictures
    for name, pixels in recorder.pictures.items():
        assert np.array_equal(pixels, np.asarray(Image.open(folder / f"{name.removeprefix('test/')}.png")))
        assert np.array_equal(pixels, client.pictures[name])
    assert recorder.tables.keys() == client.texts.keys() == tables
    assert {tag.removesuffix("/text_summary") for tag in tags["tensors"]} == tables
    for name, (columns, rows) in recorder.tables.items():
        assert rows
        assert {len(row) for row in rows} == {len(columns)}
        assert all(column in client.texts[name] for column in columns)


def test_the_stand_in_of_fast_dev_run_gets_nothing(tmp_path):
    trainer = make_trainer(tmp_path, fast_dev_run=True, logger=CSVLogger(tmp_path))
    assert not takes_images(trainer)


def test_a_fit_sends_settings_config_and_results(run, tmp_path):
    settings = """
trainer:
  max_epochs: 1
  limit_train_batches: 2
  limit_val_batches: 2
  log_every_n_steps: 1
  limit_test_batches: 2
  callbacks: [{class_path: LambdaCallback}, {class_path: LambdaCallback}]
  logger:
  - {class_path: CSVLogger, init_args: {save_dir: csv}}
  - {class_path: tests.recorder.Recorder, init_args: {api_key: very-secret}}
"""
    (tmp_path / "short.yaml").write_text(settings)
    done = run("fit", "--config", CONFIGS / "forecast_small.yaml", "--config", tmp_path / "short.yaml")
    assert done.code == 0, done.err
    assert "FLOPs" not in done.out
    folder = tmp_path / "lightning_logs/forecast_small/version_0"

    (sent,) = Recorder.last.settings  # once: not the model's own ones too
    wanted = {
        "data": "SeriesData", "data.batch_size": 64, "data.context_length": 96, "trainer.max_epochs": 1,
        "model.hidden_size": 32,
        "trainer.precision": None, "model.optimizer.lr": 0.005, "checkpoint.monitor": "val/mse",
        "trainer.callbacks.LambdaCallback_2": "LambdaCallback",
    }  # fmt: skip
    assert {name: sent.get(name) for name in wanted} == wanted
    assert yaml.safe_load(next((tmp_path / "csv").rglob("hparams.yaml")).read_text())["data.batch_size"] == 64
    assert "very-secret" not in json.dumps(sent)
    assert sent["trainer.logger.Recorder.api_key"] == "***"
    config = Recorder.last.files["config.yaml"]
    assert yaml.safe_load(config)["data"]["init_args"]["batch_size"] == 64
    assert "very-secret" not in config

    plugin, scalars = _hparams(folder)
    assert plugin["session_start_info"].hparams["data.batch_size"].number_value == 64
    assert plugin["session_start_info"].hparams["data"].string_value == "SeriesData"
    names = {info.name.tag for info in plugin["experiment"].metric_infos}
    assert {"hp/best/val/mse", "hp/val/mse", "hp/train/loss", "hp/test/mse", "hp/steps"} <= names
    assert not any("time/" in name or "memory/" in name for name in names)
    metrics = json.loads((folder / "metrics.json").read_text())
    assert scalars["hp/best/val/mse"] == [pytest.approx(metrics["best"]["value"])]
    assert scalars["hp/test/mse"] == [pytest.approx(metrics["test"]["test/mse"])]
    assert len(scalars["test/mse"]) == 1  # the curve has each point once


def _hparams(folder):
    """What TensorBoard's HPARAMS tab reads, by the kind of entry; and all scalars."""
    events = EventAccumulator(str(folder))
    events.Reload()
    plugin = {}
    for content in events.PluginTagToContent("hparams").values():
        entry = HParamsPluginData.FromString(content)
        kind = entry.WhichOneof("data")
        plugin[kind] = getattr(entry, kind)
    return plugin, {tag: [point.value for point in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def _send(loggers) -> Trainer:
    trainer = make_trainer(".", logger=loggers)
    log_settings(trainer, {"data.batch_size": 64, "trainer.max_epochs": 1})
    log_file(trainer, "config.yaml", "a: 1\n")
    log_image(trainer, "test/picture", np.zeros((2, 3, 3), np.uint8))
    log_table(trainer, "test/table", ["name", "value"], [["a", 1.5]], "| name | value |")
    return trainer


def test_mlflow_itself(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    from lightning.pytorch.loggers import MLFlowLogger

    monkeypatch.chdir(tmp_path)
    where = {"tracking_uri": f"sqlite:///{tmp_path}/runs.db", "artifact_location": str(tmp_path / "artifacts")}
    logger = MLFlowLogger(**where)
    trainer = _send([logger])
    log_settings(trainer, {"data.batch_size": 64, "trainer.max_epochs": 2, "new": 1})  # resumed, for longer
    files = {path.name for path in (tmp_path / "artifacts").rglob("*") if path.is_file()}
    assert files == {"config.yaml", "picture.png", "table.md"}
    with sqlite3.connect(tmp_path / "runs.db") as database:
        assert dict(database.execute("select key, value from params")) == {
            "data.batch_size": "64", "trainer.max_epochs": "1", "new": "1",
        }  # fmt: skip
    database.close()


def test_wandb_itself(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    from lightning.pytorch.loggers import WandbLogger

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = WandbLogger(save_dir=tmp_path, offline=True)
    _send([logger])
    assert logger.experiment.config["data.batch_size"] == 64
    logger.experiment.finish()
    assert {path.suffix for path in tmp_path.rglob("media/**/test/*")} == {".png", ".json"}

"""What loggers and the run folder get besides numbers."""

import json

import pytest
import yaml
from lightning.pytorch.loggers import CSVLogger
from matplotlib.figure import Figure
from pandas import DataFrame
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from litlab.callbacks import Baselines, ConfusionMatrix
from litlab.callbacks.reporting import publish_figure, publish_table, run_folder
from tests.litlab.callbacks.loggers import check_loggers
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer
from tests.litlab.conftest import BRIEF, CONFIGS
from tests.recorder import Recorder


class Compared(TinyData):
    def baselines(self):
        return {"majority": {"test/loss": 2.0}}


def test_every_logger_gets_what_it_takes(tmp_path):
    check_loggers(tmp_path / "a", ConfusionMatrix(), Tiny(), TinyData(), {"confusion_matrix"}, {"classes"})
    check_loggers(tmp_path / "b", Baselines(), Tiny(), Compared(), tables={"baselines"})


@pytest.mark.parametrize("options", [{"logger": False}, {"fast_dev_run": True}])
def test_a_run_without_a_folder_leaves_no_file(tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    trainer = make_trainer(tmp_path, **{"logger": CSVLogger(tmp_path), **options})
    assert run_folder(trainer) is None
    figure = Figure()
    figure.add_subplot(title=r"$\frac$")  # no formula
    publish_figure(trainer, None, "picture", figure)
    publish_table(trainer, None, "table", DataFrame({"a": [1]}))
    assert list(tmp_path.iterdir()) == []


def test_a_fit_sends_settings_and_results(run, tmp_path):
    loggers = [
        {"class_path": "CSVLogger", "init_args": {"save_dir": "csv"}},
        {"class_path": "tests.recorder.Recorder", "init_args": {"api_key": "very-secret"}},
    ]
    limits = [f"--trainer.limit_{split}_batches=2" for split in ("train", "val", "test")]
    done = run("fit", "--config", CONFIGS / "series.yaml", *BRIEF, *limits, f"--trainer.logger={json.dumps(loggers)}")
    assert done.code == 0, done.err
    (sent,) = Recorder.last.settings  # once: not the model's own ones too
    expected = {"data": "SeriesData", "data.batch_size": 64, "model.optimizer.lr": 0.005}
    assert sent == sent | expected
    assert sent["trainer.logger.Recorder.api_key"] == "***"
    assert yaml.safe_load(next((tmp_path / "csv").rglob("hparams.yaml")).read_text())["data.batch_size"] == 64

    events = EventAccumulator(str(tmp_path / "lightning_logs/series/version_0"))
    events.Reload()
    entries = [HParamsPluginData.FromString(content) for content in events.PluginTagToContent("hparams").values()]
    [start] = [entry.session_start_info for entry in entries if entry.HasField("session_start_info")]
    [experiment] = [entry.experiment for entry in entries if entry.HasField("experiment")]
    assert start.hparams["data.batch_size"].number_value == 64
    assert {"hp/val/mse", "hp/test/mse"} <= {info.name.tag for info in experiment.metric_infos}
    metrics = json.loads((tmp_path / "lightning_logs/series/version_0/metrics.json").read_text())
    assert [point.value for point in events.Scalars("hp/test/mse")] == [pytest.approx(metrics["test"]["test/mse"])]
    assert len(events.Scalars("test/mse")) == 1  # the curve has each point once

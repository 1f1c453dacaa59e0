"""What a run leaves about itself, however it ends."""

import os
import sys
from importlib import metadata

import pytest
import yaml
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger

from litlab.checkpointing.io import load_torch_file
from litlab.runs import provenance as provenance_module
from litlab.runs.folder import RunFolder, read_json
from litlab.runs.record import RunRecord, log_results, resume_loggers
from litlab.runs.signals import Interrupted
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer
from tests.litlab.runs.conftest import scalars
from tests.recorder import Recorder, RunRecorder

CONFIG = {"data": {"api_key": "hunter2x", "size": 3}}


class Data(TinyData):
    description = "10 images of noise, from https://me:hunter2x@host/x"
    fingerprint = "abc123"


class Raise(Callback):
    def __init__(self, error: BaseException, hook: str) -> None:
        self.error = error
        setattr(self, hook, self.fail)

    def fail(self, trainer, *_):
        if not trainer.sanity_checking and (trainer.current_epoch > 0 or trainer.testing):
            raise self.error


class Peak(Callback):
    peak_gib = 1.5


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Builds the Trainer of a run with a config; its code is on one commit after the other."""
    codes = iter([("a" * 40, "diff --git ...\n"), ("b" * 40, "")])
    monkeypatch.setattr(provenance_module, "work_tree", lambda: next(codes))

    def build(*callbacks: Callback, **settings) -> Trainer:
        logger = TensorBoardLogger(tmp_path / "lightning_logs", name="tiny", version=0)
        best = ModelCheckpoint(monitor="val/acc", mode="max", filename="{epoch}-{step}")
        settings = {"logger": logger, "max_epochs": 2, "enable_checkpointing": True, **settings}
        return make_trainer(tmp_path, callbacks=[RunRecord(lambda: CONFIG), best, *callbacks], **settings)

    return build


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    return RunFolder(tmp_path / "lightning_logs" / "tiny" / "version_0")


@pytest.mark.filterwarnings("ignore:Checkpoint directory")
def test_a_fit_its_test_and_a_fit_that_continues_it(make, folder, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/x/auks/__main__.py", "fit", "--hub.token", "hunter2x"])
    seed_everything(7, verbose=False)
    trainer = make(Peak())
    trainer.fit(Tiny(), Data())
    after_fit = read_json(folder.metrics)
    assert (read_json(folder.status)["status"], after_fit["test"]) == ("running", None)
    [results] = trainer.test(Tiny(), Data(), verbose=False)
    log_results(trainer)
    shown = [value for _, value in scalars(folder, "test/loss") + scalars(folder, "hp/test/loss")]
    assert shown == pytest.approx([results["test/loss"]] * 2), "the curve has each point once"

    status, metrics = read_json(folder.status), read_json(folder.metrics)
    assert (status["status"], status["reason"]) == ("finished", None)
    best, score = metrics["best"], trainer.checkpoint_callback.best_model_score
    assert (best["monitor"], best["mode"], best["value"]) == ("val/acc", "max", float(score))
    assert metrics["val"].keys() == {"val/acc"}
    assert (metrics["epochs"], metrics["steps"], metrics["peak_memory_gib"]) == (2, 6, 1.5)
    assert metrics == {**after_fit, "test": results, "test_checkpoint": None}  # the weights as they were in memory
    [val] = make().validate(Tiny(), Data(), verbose=False)
    assert read_json(folder.metrics) == {**metrics, "val": val, "val_checkpoint": None}
    assert read_json(folder.status) == status

    origin = read_json(folder.provenance)
    assert origin["command"] == ["python", "-m", "auks", "fit", "--hub.token", "***"]
    assert (origin["commit"], origin["dirty"]) == ("a" * 40, True)
    assert (folder.path / origin["uncommitted"]["file"]).read_text() == "diff --git ...\n"
    assert (origin["seed"], origin["data"]["fingerprint"]) == (7, "abc123")
    assert origin["versions"]["torch"] == metadata.version("torch")
    assert (origin["hardware"]["device"], origin["hardware"]["ranks"]) == ("cpu", 1)
    for file in [*folder.path.glob("*.json"), *folder.path.glob("events*")]:
        assert b"hunter2x" not in file.read_bytes(), file
    [file] = folder.checkpoints.glob("*.ckpt")
    for config in (folder.config.read_text(), load_torch_file(file)["config"]):
        assert yaml.safe_load(config) == CONFIG  # as it is: the run can be repeated

    make(max_epochs=3).fit(Tiny(), Data(), ckpt_path=file, weights_only=True)
    longer, both = read_json(folder.metrics), read_json(folder.provenance)
    assert (longer["epochs"], longer["test"]) == (3, None)  # the test was of other weights
    assert longer["seconds"] > metrics["seconds"]
    [session] = both.pop("continued")
    assert both == origin
    assert (session["commit"], session["uncommitted"]) == ("b" * 40, None)


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (RuntimeError("no room with password=hunter2x\nand more"), "failed", "RuntimeError: no room with password=***"),
        (Interrupted(15), "interrupted", "SIGTERM"),
    ],
)
def test_a_fit_that_does_not_end_by_itself(make, folder, error, status, reason):
    with pytest.raises((type(error), SystemExit)):
        make(Raise(error, "on_train_batch_start"), max_epochs=3).fit(Tiny(), Data())
    state, metrics = read_json(folder.status), read_json(folder.metrics)
    assert (state["status"], state["reason"]) == (status, reason)
    assert state["ended"]
    assert (metrics["epochs"], metrics["steps"]) == (1, 3)  # it broke in the second epoch
    place = state["place"] or {}
    assert [place.get(name) for name in ("epoch", "step", "batch")] == ([1, 3, 0] if status == "failed" else [None] * 3)
    assert place.get("line", "None:").partition(":")[0] in (os.path.relpath(__file__), "None")


def test_a_fit_whose_test_fails_is_not_finished(make, folder):
    trainer = make(Raise(RuntimeError("broken"), "on_test_start"), max_epochs=1)
    trainer.fit(Tiny(), Data())
    with pytest.raises(RuntimeError):
        trainer.test(Tiny(), Data(), verbose=False)
    assert folder.state()["reason"] == "in its test: RuntimeError: broken"
    assert folder.state()["status"] == "failed"
    events = b"".join(file.read_bytes() for file in folder.path.glob("events*"))
    assert b"hp/val/acc" in events
    assert b"hp/test/" not in events


def test_a_fit_whose_data_is_missing_leaves_nothing(make, folder):
    class Missing(TinyData):
        def setup(self, stage):
            raise RuntimeError("no data")

    with pytest.raises(RuntimeError, match="no data"):
        make().fit(Tiny(), Missing())
    assert not folder.is_run()


class WandbLogger(Recorder):
    """Has the name by which W&B's is known, and a run of its own."""

    version = "id7"


class MLFlowLogger(RunRecorder):
    version = "r1"


def test_loggers_go_on_with_their_runs(make, folder, tmp_path):
    loggers = [make().logger, WandbLogger(), MLFlowLogger()]
    make(logger=loggers, max_epochs=1).fit(Tiny(), Data())
    assert loggers[1].settings == {"data.api_key": "***", "data.size": 3}

    names = ["WandbLogger", "MLFlowLogger", "CSVLogger"]
    config = [{"class_path": f"lightning.pytorch.loggers.{name}", "init_args": {"x": 1}} for name in names]
    resume_loggers(config, RunFolder(tmp_path))
    assert all(logger["init_args"] == {"x": 1} for logger in config)  # a new run
    resume_loggers(config, folder)
    assert [logger["init_args"] for logger in config] == [{"x": 1, "id": "id7"}, {"x": 1, "run_id": "r1"}, {"x": 1}]

"""What a run leaves about itself, however it ends."""

import os
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger

from litlab.checkpointing.io import load_torch_file
from litlab.errors import UserError
from litlab.runs.folder import RunFolder, read_json, write_json
from litlab.runs.loggers import resume_loggers
from litlab.runs.record import RunRecord, update_metrics
from litlab.runs.run import Run
from tests.litlab.callbacks.tiny import Tiny, TinyData, make_trainer
from tests.litlab.runs.conftest import scalars
from tests.litlab.runs.make import CONFIG, command
from tests.recorder import Recorder, RunRecorder

FOLDER = RunFolder(Path("lightning_logs/tiny/version_0"))


class Data(TinyData):
    description = "10 images of noise, from https://me:hunter2x@host/x"
    fingerprint = "abc123"


class Raise(Callback):
    def __init__(self, message: str) -> None:
        self.message = message

    def on_train_batch_start(self, trainer, *_):
        if trainer.current_epoch > 0:
            raise RuntimeError(self.message)

    def on_test_start(self, *_):
        raise RuntimeError(self.message)


class Peak(Callback):
    peak_gib = 1.5


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Builds the Trainer of a run with a config; its code is on one commit after the other."""
    monkeypatch.chdir(tmp_path)
    codes = iter([("a" * 40, "diff --git ...\n"), ("b" * 40, "")])
    monkeypatch.setattr("litlab.runs.provenance.read_work_tree", lambda: next(codes))

    def build(run: Run, *callbacks: Callback, **settings) -> Trainer:
        path = run.folder.path
        logger = TensorBoardLogger(path.parent, name="", version=path.name)
        best = ModelCheckpoint(monitor="val/acc", mode="max", filename="{epoch}-{step}")
        settings = {"logger": logger, "max_epochs": 2, "enable_checkpointing": True, **settings}
        return make_trainer(tmp_path, callbacks=[RunRecord(run), best, *callbacks], **settings)

    return build


@pytest.fixture
def train(make):
    """Fits a run, with further callbacks, and does what may follow."""

    def fit(
        *callbacks: Callback, then: Callable[[Trainer], object] | None = None, **settings
    ) -> None:
        with Run.start(command()) as run:
            trainer = make(run, *callbacks, **settings)
            trainer.fit(Tiny(), Data())
            if then is not None:
                then(trainer)

    return fit


def test_a_fit_its_test_and_a_fit_that_continues_it(make, monkeypatch):
    monkeypatch.setattr(sys, "argv", "/x/auks/__main__.py fit --hub.token hunter2x".split())
    seed_everything(7, verbose=False)
    with Run.start(command()) as run:
        trainer = make(run, Peak())
        trainer.fit(Tiny(), Data())
        after_fit = read_json(FOLDER.metrics)
        assert (FOLDER.read_state()["status"], after_fit["test"]) == ("running", None)
        [results] = trainer.test(Tiny(), Data(), verbose=False)
    shown = [value for _, value in scalars(FOLDER, "test/loss") + scalars(FOLDER, "hp/test/loss")]
    assert shown == pytest.approx([results["test/loss"]] * 2), "the curve has each point once"

    status, metrics, origin = map(read_json, (FOLDER.status, FOLDER.metrics, FOLDER.provenance))
    assert status == status | {"status": "finished", "reason": None}
    score = float(trainer.checkpoint_callback.best_model_score)
    best = {"monitor": "val/acc", "mode": "max", "value": score}
    assert after_fit["best"] == after_fit["best"] | best
    counts = {"val": {"val/acc": score}, "epochs": 2, "steps": 6, "peak_memory_gib": 1.5}
    # The weights as they were in memory
    assert metrics == after_fit | counts | {"test": results, "test_checkpoint": None}

    typed = "python -m auks fit --hub.token ***".split()
    assert origin == origin | {"command": typed, "commit": "a" * 40, "dirty": True, "seed": 7}
    assert (FOLDER.path / origin["uncommitted"]["file"]).read_text() == "diff --git ...\n"
    assert origin["data"]["fingerprint"] == "abc123"
    assert origin["versions"]["torch"] == metadata.version("torch")
    assert origin["hardware"] == origin["hardware"] | {"device": "cpu", "ranks": 1}
    for file in [*FOLDER.path.glob("*.json"), *FOLDER.path.glob("events*")]:
        assert b"hunter2x" not in file.read_bytes(), file
    [file] = FOLDER.checkpoints.glob("*.ckpt")
    for config in (FOLDER.config.read_text(), load_torch_file(file)["config"]):
        assert yaml.safe_load(config) == CONFIG  # as it is: the run can be repeated

    with Run.start(command(run=FOLDER)) as run:
        assert run.is_finished  # it is asked to go on all the same
        make(run, max_epochs=3).fit(Tiny(), Data(), ckpt_path=file, weights_only=True)
    longer, both = read_json(FOLDER.metrics), read_json(FOLDER.provenance)
    assert (longer["epochs"], longer["test"]) == (3, None)  # the test was of other weights
    assert longer["seconds"] > metrics["seconds"]
    [session] = both.pop("continued")
    assert both == origin
    assert (session["commit"], session["uncommitted"]) == ("b" * 40, None)


def test_a_fit_that_fails(train):
    with pytest.raises(RuntimeError):
        train(Raise("no room with password=hunter2x\nmore"))
    state, metrics = read_json(FOLDER.status), read_json(FOLDER.metrics)
    assert state["ended"]
    assert state["place"].pop("line").startswith(f"{os.path.relpath(__file__)}:")
    failed = {"status": "failed", "reason": "RuntimeError: no room with password=***"}
    assert state == state | failed | {"place": {"epoch": 1, "step": 3, "batch": 0}}
    assert metrics == metrics | {"epochs": 1, "steps": 3}  # it broke in the second epoch
    assert FOLDER.traceback.is_file()


def test_a_fit_whose_test_fails_is_not_finished(train):
    def evaluate(trainer):
        trainer.test(Tiny(), Data(), verbose=False)

    with pytest.raises(RuntimeError):
        train(Raise("broken"), max_epochs=1, then=evaluate)
    state = FOLDER.read_state()
    assert (state["status"], state["reason"]) == ("failed", "in its test: RuntimeError: broken")
    events = b"".join(file.read_bytes() for file in FOLDER.path.glob("events*"))
    assert b"hp/val/acc" in events
    assert b"hp/test/" not in events


def test_all_numbers_of_a_run_are_those_of_its_best_checkpoint(make):
    """Here the second of four validations is the best one, and the run is resumed behind it."""

    class Falling(Tiny):
        def validation_step(self, batch, batch_idx):
            value = [0.5, 0.9, 0.7, 0.6][self.current_epoch]
            self.log_dict({"val/acc": value, "val/loss": float(self.current_epoch)})

        def on_train_epoch_end(self):  # another process tests it meanwhile
            update_metrics(FOLDER, {"test": {"test/acc": 0.5}})

    best = {"val/acc": pytest.approx(0.9), "val/loss": 1.0}
    last = ModelCheckpoint(save_last=True)
    with Run.start(command()) as run:
        make(run, last, max_epochs=3).fit(Falling(), Data())
    metrics = read_json(FOLDER.metrics)
    assert (metrics["val"], metrics["test"]) == (best, {"test/acc": 0.5})
    FOLDER.metrics.unlink()  # as if it had been killed before it was written
    with Run.start(command(run=FOLDER)) as run:
        resumed = {"ckpt_path": FOLDER.checkpoints / "last.ckpt", "weights_only": True}
        make(run, last, max_epochs=4).fit(Falling(), Data(), **resumed)
    metrics = read_json(FOLDER.metrics)
    assert (metrics["val"], metrics["val_checkpoint"]) == (best, metrics["best"]["checkpoint"])


@pytest.mark.parametrize("is_auto", [True, False])
def test_what_another_process_is_starting_is_not_started_again(make, is_auto):
    first, second = command(), command()
    first.line.is_auto, second.line.is_auto = is_auto, True
    says = r"^tiny\S*: another process trains it; wait"
    with Run.start(first) as run:
        make(run, max_epochs=1).fit(Tiny(), Data())
        with pytest.raises(UserError, match=says), Run.start(second):
            pass
    assert [path.name for path in FOLDER.path.parent.iterdir() if path.is_dir()] == ["version_0"]


def test_the_process_that_failed_first_is_named(train):
    def fail(trainer):
        other = FOLDER.path / "traceback_rank_1.txt"
        other.write_text('Traceback ...\n  File "a.py", line 3, in step\nValueError: bad batch\n')
        raise RuntimeError("Connection closed by peer")

    with pytest.raises(RuntimeError) as raised:
        train(then=fail)
    assert FOLDER.read_state()["reason"] == "rank 1: ValueError: bad batch"
    assert "traceback_rank_1.txt" in " ".join(raised.value.__notes__)
    # As if rank 0 had been killed
    write_json(FOLDER.status, {**read_json(FOLDER.status), "status": "running"})
    state = FOLDER.read_state()
    assert (state["status"], state["reason"]) == ("failed", "rank 1: ValueError: bad batch")


class WandbLogger(Recorder):
    """Has the name by which W&B's is known, and a run of its own."""

    version = "id7"


class MLFlowLogger(RunRecorder):
    version = "r1"


def test_loggers_go_on_with_their_runs(make, tmp_path):
    with Run.start(command()) as run:
        loggers = [make(run).logger, WandbLogger(), MLFlowLogger()]
        make(run, logger=loggers, max_epochs=1).fit(Tiny(), Data())
    assert loggers[1].settings == {"data.api_key": "***", "data.size": 3}

    config = [
        {"class_path": f"lightning.pytorch.loggers.{name}", "init_args": {}}
        for name in ("WandbLogger", "MLFlowLogger", "CSVLogger")
    ]
    resume_loggers(config, RunFolder(tmp_path))
    assert not any(logger["init_args"] for logger in config)  # a new run
    resume_loggers(config, FOLDER)
    assert [logger["init_args"] for logger in config] == [{"id": "id7"}, {"run_id": "r1"}, {}]

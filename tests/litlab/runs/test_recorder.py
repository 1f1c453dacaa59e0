"""What a run leaves about itself, however it ends."""

import sys
from importlib import metadata

import pytest
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from litlab.runs.git import WorkTree

from litlab.errors import UserError
from litlab.runs import provenance as provenance_module
from litlab.runs import recorder as record_module
from litlab.runs.folder import RunFolder, read_json
from litlab.runs.record import RunRecord
from litlab.runs.signals import Interrupted
from tests.litlab.callbacks.tiny import Tiny, TinyData


class Data(TinyData):
    description = "10 images of noise, from https://me:hunter2x@host/x"
    fingerprint = "abc123"


class Raise(Callback):
    def __init__(self, error: BaseException, hook: str) -> None:
        self.error = error
        setattr(self, hook, self.fail)

    def fail(self, trainer, *_):
        if trainer.sanity_checking or (trainer.current_epoch == 0 and not trainer.testing):
            return
        raise self.error


class Peak(Callback):
    peak_gib = 1.5


@pytest.fixture
def trainer_of(tmp_path):
    def build(*callbacks: Callback, version: int = 0, **settings) -> Trainer:
        logger = TensorBoardLogger(tmp_path / "lightning_logs", name="tiny", version=version)
        best = ModelCheckpoint(monitor="val/acc", mode="max", filename="{epoch}-{step}")
        return Trainer(**{
            "logger": logger, "accelerator": "cpu", "max_epochs": 2, "enable_progress_bar": False,
            "enable_model_summary": False, "callbacks": [RunRecord(), best, *callbacks], "log_every_n_steps": 1,
            **settings,
        })  # fmt: skip

    return build


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    return RunFolder(tmp_path / "lightning_logs" / "tiny" / "version_0")


def test_a_fit_and_its_test(trainer_of, folder):
    trainer = trainer_of(Peak())
    trainer.fit(Tiny(), Data())
    after_fit = read_json(folder.metrics)
    assert "test" not in after_fit
    [results] = trainer.test(Tiny(), Data(), verbose=False)

    status = read_json(folder.status)
    assert (status["status"], status["reason"]) == ("finished", None)
    assert status["ended"] >= status["started"]
    metrics = read_json(folder.metrics)
    checkpoint = trainer.checkpoint_callback
    assert isinstance(checkpoint, ModelCheckpoint)
    assert checkpoint.best_model_score is not None
    best = metrics["best"]
    assert (best["monitor"], best["mode"]) == ("val/acc", "max")
    assert best["value"] == float(checkpoint.best_model_score)
    assert (folder.checkpoints / best["checkpoint"]).is_file()
    assert f"epoch={best['epoch']}-" in best["checkpoint"]
    assert metrics["val"].keys() == {"val/acc"}
    assert metrics["test"] == results
    assert (metrics["epochs"], metrics["steps"], metrics["peak_memory_gib"]) == (2, 6, 1.5)
    assert 0 < metrics["seconds"] == status["seconds"]
    assert metrics["generated_data"] is False
    tested = {"test": results, "test_checkpoint": None}  # the weights as they were in memory
    assert metrics == {**after_fit, **tested}


def test_provenance(trainer_of, folder, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/x/auks/__main__.py", "fit", "--hub.token", "hunter2x"])
    code = WorkTree(folder.path, "c" * 40, diff="diff --git ...\n", digest="d" * 64, untracked=("notes.txt",))
    monkeypatch.setattr(provenance_module, "work_tree", lambda: code)
    seed_everything(7, verbose=False)
    trainer_of(max_epochs=1).fit(Tiny(), Data())
    made = read_json(folder.provenance)
    assert made["command"] == ["python", "-m", "auks", "fit", "--hub.token", "***"]
    assert (made["commit"], made["dirty"]) == ("c" * 40, True)
    assert made["uncommitted"] == {"file": "uncommitted.diff", "sha256": "d" * 64, "complete": True}
    assert (folder.path / "uncommitted.diff").read_text() == code.diff
    assert made["seed"] == 7
    assert made["versions"]["torch"] == metadata.version("torch")
    assert made["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert made["hardware"]["device"] == "cpu"
    assert (made["hardware"]["ranks"], made["hardware"]["precision"]) == (1, "32-true")
    assert made["data"]["fingerprint"] == "abc123"
    for file in folder.path.glob("*.*"):
        assert b"hunter2x" not in file.read_bytes(), file


def test_code_that_is_not_under_version_control(trainer_of, folder, monkeypatch):
    monkeypatch.setattr(provenance_module, "work_tree", lambda: WorkTree(problem="not a git repository"))
    trainer_of(max_epochs=1).fit(Tiny(), Data())
    made = read_json(folder.provenance)
    assert (made["commit"], made["why_no_commit"]) == (None, "not a git repository")
    assert not (folder.path / "uncommitted.diff").exists()


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (RuntimeError("no room\nfor password=hunter2x"), "failed", "RuntimeError: no room for password=***"),
        (Interrupted(15), "interrupted", "SIGTERM"),
        (KeyboardInterrupt(), "interrupted", "KeyboardInterrupt"),
    ],
)
def test_a_fit_that_does_not_end_by_itself(trainer_of, folder, error, status, reason):
    with pytest.raises((type(error), SystemExit)):
        trainer_of(Raise(error, "on_train_batch_start"), max_epochs=3).fit(Tiny(), Data())
    state, metrics = read_json(folder.status), read_json(folder.metrics)
    assert (state["status"], state["reason"]) == (status, reason)
    assert state["ended"]
    assert (metrics["epochs"], metrics["steps"]) == (1, 3)  # it broke in the second epoch
    assert metrics["best"]["epoch"] == 0
    assert "val/acc" in metrics["val"]


def test_a_fit_that_is_to_be_tested_is_not_finished_before(trainer_of, folder):
    seen = []

    class Look(Callback):
        def on_test_start(self, trainer, pl_module):
            seen.append(folder.state())

    trainer = trainer_of(Look(), callbacks=[RunRecord(lambda: True), Look(), ModelCheckpoint()])
    trainer.fit(Tiny(), Data())
    assert folder.is_incomplete(test_wanted=True)
    trainer.test(Tiny(), Data(), verbose=False)
    [during], after = seen, folder.state()
    assert (during["status"], during["test"]) == ("running", "pending")
    assert (after["status"], after["test"]) == ("finished", "done")
    assert not folder.is_incomplete(test_wanted=True)


def test_a_fit_without_a_test_lacks_it_when_it_is_wanted_later(trainer_of, folder):
    trainer_of(callbacks=[RunRecord(lambda: False)], enable_checkpointing=False).fit(Tiny(), Data())
    assert (folder.state()["status"], folder.state()["test"]) == ("finished", "none")


def test_the_test_after_a_fit_can_fail(trainer_of, folder):
    trainer = trainer_of(Raise(RuntimeError("broken"), "on_test_start"))
    trainer.fit(Tiny(), Data())
    with pytest.raises(RuntimeError):
        trainer.test(Tiny(), Data(), verbose=False)
    state = read_json(folder.status)
    assert (state["status"], state["reason"]) == ("failed", "in test, after the fit: RuntimeError: broken")
    assert read_json(folder.metrics)["epochs"] == 2


def test_a_fit_whose_data_is_missing_leaves_nothing(trainer_of, folder):
    class Missing(TinyData):
        def setup(self, stage):
            raise RuntimeError("no data")

    with pytest.raises(RuntimeError, match="no data"):
        trainer_of().fit(Tiny(), Missing())
    assert not folder.is_run()


def test_the_error_of_the_run_is_seen_although_its_end_can_not_be_written(trainer_of, folder, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device")

    class FillDisk(Callback):
        def on_train_batch_start(self, *_):
            monkeypatch.setattr(record_module, "write_json", full)
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        trainer_of(FillDisk()).fit(Tiny(), Data())
    assert "warning: the run's end is not recorded: OSError" in capsys.readouterr().err


def test_while_it_runs_it_shows_the_epochs_that_are_done(trainer_of, folder):
    seen: list[tuple[str, dict]] = []

    class Look(Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            if batch_idx == 0:
                seen.append((folder.state()["status"], read_json(folder.metrics)))

    trainer_of(Look()).fit(Tiny(), Data())
    (first, nothing), (second, metrics) = seen
    assert (first, second, nothing) == ("running", "running", {})
    assert (metrics["epochs"], metrics["best"]["epoch"]) == (1, 0)


def test_a_later_test_or_validate_changes_its_own_metrics_only(trainer_of, folder):
    trainer_of().fit(Tiny(), Data())
    before = {file: read_json(file) for file in (folder.status, folder.metrics, folder.provenance)}
    [results] = trainer_of().test(Tiny(), Data(), verbose=False)
    tested = {**before[folder.metrics], "test": results, "test_checkpoint": None}  # weights of nowhere
    assert read_json(folder.metrics) == tested
    [val] = trainer_of().validate(Tiny(), Data(), verbose=False)
    assert read_json(folder.metrics) == {**tested, "val": val, "val_checkpoint": None}
    assert read_json(folder.status) == before[folder.status]
    assert read_json(folder.provenance) == before[folder.provenance]


def test_a_test_that_fails_leaves_the_run_as_it_was(trainer_of, folder):
    trainer_of().fit(Tiny(), Data())
    before = read_json(folder.status)
    with pytest.raises(RuntimeError):
        trainer_of(Raise(RuntimeError("broken"), "on_test_start")).test(Tiny(), Data(), verbose=False)
    assert read_json(folder.status) == before


@pytest.mark.filterwarnings("ignore:Checkpoint directory")
def test_a_fit_that_continues_a_run_adds_to_it(trainer_of, folder, monkeypatch):
    codes = iter([WorkTree(commit="a" * 40), WorkTree(commit="b" * 40, diff="d\n", digest="d" * 64)])
    monkeypatch.setattr(provenance_module, "work_tree", lambda: next(codes))
    trainer = trainer_of(max_epochs=1)
    trainer.fit(Tiny(), Data())
    trainer.test(Tiny(), Data(), verbose=False)
    first, made = read_json(folder.metrics), read_json(folder.provenance)
    last = folder.checkpoints / first["best"]["checkpoint"]
    trainer_of(max_epochs=3).fit(Tiny(), Data(), ckpt_path=last, weights_only=True)
    metrics, both = read_json(folder.metrics), read_json(folder.provenance)
    assert metrics["epochs"] == 3
    assert "test" not in metrics  # it was of other weights
    assert metrics["seconds"] > first["seconds"]
    [session] = both.pop("continued")
    assert both == made
    assert session["commit"] == "b" * 40
    assert session["uncommitted"]["file"] == "uncommitted_1.diff"
    assert (folder.path / "uncommitted_1.diff").is_file()


@pytest.mark.parametrize("settings", [{"logger": False, "callbacks": [RunRecord()]}, {"fast_dev_run": True}])
def test_a_run_without_a_folder_leaves_nothing(trainer_of, tmp_path, monkeypatch, settings):
    monkeypatch.chdir(tmp_path)
    trainer = trainer_of(**{"enable_checkpointing": False, "callbacks": [RunRecord()], **settings})
    trainer.fit(Tiny(), Data())
    trainer.test(Tiny(), Data(), verbose=False)
    assert not list(tmp_path.rglob("*.json"))


def test_without_a_monitor_there_is_no_best(trainer_of, folder):
    trainer_of(callbacks=[RunRecord(), ModelCheckpoint()], max_steps=1).fit(Tiny(), Data())
    assert read_json(folder.metrics)["best"] is None


def test_nothing_is_done_per_step():
    for hook in ("on_train_batch_start", "on_train_batch_end", "on_before_zero_grad", "on_after_backward"):
        assert getattr(RunRecord, hook) is getattr(Callback, hook)


def test_only_the_first_rank_writes(trainer_of, tmp_path, monkeypatch):
    trainer = trainer_of(enable_checkpointing=False, callbacks=[RunRecord()])
    monkeypatch.setattr(Trainer, "is_global_zero", False)
    trainer.fit(Tiny(), Data())
    trainer.test(Tiny(), Data(), verbose=False)
    assert not list(tmp_path.rglob("*.json"))


class Refuse(Callback):
    """Refuses a setting: as the fit begins, or in its first batch; or fails after a step."""

    def __init__(self, hook: str, error: Exception) -> None:
        def fail(*_):
            raise error

        setattr(self, hook, fail)


def kept(folder: RunFolder) -> dict[str, bytes]:
    files = (path for path in folder.path.iterdir() if path.is_file() and "tfevents" not in path.name)
    return {path.name: path.read_bytes() for path in files}


@pytest.mark.parametrize("hook", ["on_fit_start", "on_train_batch_start"])
@pytest.mark.filterwarnings("ignore:Checkpoint directory")
def test_a_run_stays_as_it_was_where_its_continuation_is_refused(trainer_of, folder, hook):
    trainer_of().fit(Tiny(), Data())
    before = kept(folder)
    assert {"status.json", "metrics.json", "provenance.json"} <= before.keys()
    with pytest.raises(UserError):
        trainer_of(Refuse(hook, UserError("trainer.strategy: no"))).fit(Tiny(), Data())
    assert kept(folder) == before
    with pytest.raises(UserError):
        trainer_of(Refuse("on_train_batch_end", UserError("nan_guard: no"))).fit(Tiny(), Data())
    assert read_json(folder.status)["status"] == "failed"

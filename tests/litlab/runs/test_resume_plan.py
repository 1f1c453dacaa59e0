"""`fit --resume`: a run is continued in its folder, by its name alone."""

import csv

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

from litlab.runs import claim
from litlab.runs.folder import RunFolder, read_json
from tests.litlab.runs.conftest import CONFIG, error, held_by_another, interrupt, scalars


def test_a_resumed_run_continues_in_its_folder(run, folder):
    before = read_json(folder.metrics)
    done = run("fit", "--resume", "last", "--trainer.max_epochs", 3)
    assert done.code == 0, done.err
    assert "Settings that differ from series/version_0: trainer.max_epochs: 2 -> 3." in done.err
    assert [path.name for path in folder.path.parent.iterdir()] == ["version_0"]
    metrics = read_json(folder.metrics)
    assert (metrics["epochs"], metrics["steps"]) == (3, before["steps"] // 2 * 3)
    steps = [step for step, _ in scalars(folder, "train/loss_step")]
    assert steps == list(range(metrics["steps"]))
    assert "max_epochs: 3" in folder.config.read_text()
    assert torch.load(folder.checkpoints / "last.ckpt", weights_only=True)["epoch"] == 2
    assert not list(folder.checkpoints.glob("*-v[0-9]*.ckpt"))


def test_what_was_logged_after_the_checkpoint_is_hidden(run, folder):
    """A killed run has logged more than its last checkpoint knows of; the curve must not go back and forth."""
    first, last = sorted(folder.checkpoints.glob("epoch=*.ckpt")), folder.checkpoints / "last.ckpt"
    interrupt(folder)
    state = torch.load(last, weights_only=True)
    half = state["global_step"] // 2
    progress = state["loops"]["fit_loop"]["epoch_progress"]
    for count in (progress["total"], progress["current"]):
        count.update({name: count[name] - 1 for name in count})
    state["global_step"], state["epoch"] = half, 0
    optimizers = state["loops"]["fit_loop"]["epoch_loop.automatic_optimization.optim_progress"]["optimizer"]
    for count in optimizers["step"].values():
        count.update(dict.fromkeys(count, half))
    state["loops"]["fit_loop"]["epoch_loop.state_dict"]["_batches_that_stepped"] = half
    for path in (*first, last):
        path.unlink()
    torch.save(state, last)
    done = run("fit", "--resume", folder.path)
    assert done.code == 0, done.err
    steps = [step for step, _ in scalars(folder, "train/loss_step")]
    assert steps == list(range(2 * half))


def test_a_finished_run_says_so(run, folder):
    before = folder.metrics.read_bytes()
    done = run("fit", "--resume", "series")
    assert done.code == 0
    assert "series/version_0 is finished: 2 epochs" in done.err
    assert folder.metrics.read_bytes() == before


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (
            ["--trainer.max_epochs=1"],
            "trainer.max_epochs: 1 is too low, as series/version_0 has done 2 epochs.",
        ),
        (
            ["--trainer.max_epochs=3", "--model.hidden_size=16"],
            "don't fit it as it is described here (model.hidden_size: 8",
        ),
        (["--trainer.max_epochs=3", "--model=SmallCNN"], "another class of model (model: SmallForecaster -> SmallCNN)"),
        (["--trainer.max_epochs=3", "--model.optimizer=torch.optim.SGD"], "another class of model.optimizer"),
        (["--ckpt_path=x.ckpt"], "leave --ckpt_path out"),
        (["--init_from=last"], "leave --init_from out"),
    ],
)
def test_changes_that_can_not_work_are_refused(run, folder, flags, says):
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    assert says in error(run("fit", "--resume", "last", *flags))
    assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == before


def test_data_can_not_change_within_an_epoch(run, folder):
    interrupt(folder)
    path = folder.checkpoints / "last.ckpt"
    state = torch.load(path, weights_only=True)
    batches = state["loops"]["fit_loop"]["epoch_loop.batch_progress"]
    batches["is_last_batch"] = False
    batches["current"]["ready"] = 3
    state["global_step"] += 1
    torch.save(state, path)
    done = run("fit", "--resume", "last", "--trainer.max_epochs=4", "--data.batch_size=24")
    assert "after batch 3, and its other batches depend on what was changed (data.batch_size: 48 -> 24)" in error(done)


def test_a_running_run_is_left_alone(run, folder, monkeypatch):
    monkeypatch.setattr(RunFolder, "state", lambda self: {"status": "running", "pid": 1})
    assert "is still running (process 1)" in error(run("fit", "--resume", "last"))


def test_a_run_that_another_process_trains_is_left_alone(run, folder, monkeypatch):
    monkeypatch.setattr(claim, "SECONDS_TO_END", 0.0)
    interrupt(folder)
    with held_by_another(folder.path):
        assert "is still running (another process has locked it)" in error(run("fit", "--resume", "last"))
        assert "is still running (another process has locked it)" in error(
            run("fit", "--config", CONFIG, "--resume=auto")
        )


def test_new_settings_of_the_optimizer_hold(run, folder):
    done = run("fit", "--resume", "last", "--trainer.max_epochs=3", "--model.optimizer.lr=0.001")
    assert done.code == 0, done.err
    assert "model.optimizer.lr: 0.005 -> 0.001" in done.err
    rates = dict(scalars(folder, "lr-Adam"))
    steps = read_json(folder.metrics)["steps"]
    assert rates[0] == pytest.approx(0.005)
    assert rates[steps - 1] == pytest.approx(0.001)


def test_other_loggers_append_to_their_files(run, settings, tmp_path):
    logger = f"{{class_path: {CSVLogger.__module__}.CSVLogger, init_args: {{save_dir: csv}}}}"
    done = run("fit", "--config", CONFIG, *settings, "--trainer.max_epochs=1", "--trainer.logger", logger)
    assert done.code == 0, done.err
    folder = RunFolder(tmp_path / "lightning_logs/series/version_0")
    [path] = tmp_path.glob("csv/*/*/metrics.csv")
    before = rows(path)
    with path.open("a") as stream:
        stream.write(",".join(["999"] * len(before[0])) + "\r\n")  # logged after the checkpoint, before a kill
    done = run("fit", "--resume", "last", "--trainer.max_epochs=2")
    assert done.code == 0, done.err
    assert list(tmp_path.glob("csv/*/*/metrics.csv")) == [path]
    without_test = [row for row in before if not row["test/mse"]]
    after = rows(path)
    assert after[: len(without_test)] == without_test
    assert [int(row["step"]) for row in after if row["train/loss_step"]] == list(
        range(read_json(folder.metrics)["steps"])
    )
    assert run("test", "--run", "last").code == 0
    assert rows(path)[: len(after)] == after


def rows(path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))

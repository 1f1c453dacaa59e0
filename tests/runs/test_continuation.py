"""Runs are gone on with, tested and predicted with by their name alone."""

import json
import shutil

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from project.runs.folder import RunFolder, read_json
from tests.conftest import CONFIGS, shell

CONFIG = CONFIGS / "forecast_small.yaml"


@pytest.fixture(scope="module")
def settings(series) -> list[str]:
    return [
        "--data.dataset=csv", f"--data.path={series}", "--data.targets=[load]", "--data.past=48", "--data.horizon=24",
        "--data.batch_size=48", "--data.split=[0.6, 0.2, 0.2]", "--trainer.accelerator=cpu", "--model.width=8",
        "--trainer.log_every_n_steps=1", "--trainer.callbacks=[]",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def fitted(settings, tmp_path_factory):
    """A run of two epochs."""
    folder = tmp_path_factory.mktemp("fitted")
    done = shell("fit", "--config", CONFIG, *settings, "--trainer.max_epochs=2", cwd=folder)
    assert done.code == 0, done.err
    return folder / "lightning_logs"


@pytest.fixture
def folder(fitted, tmp_path) -> RunFolder:
    """A copy of that run, in the folder that commands run in."""
    shutil.copytree(fitted, tmp_path / "lightning_logs")
    return RunFolder(tmp_path / "lightning_logs/forecast_small/version_0")


def error(done) -> str:
    assert done.code == 2, done.out + done.err
    assert "Traceback" not in done.err
    return next(line for line in done.err.splitlines() if line.startswith("error: "))


def scalars(run: RunFolder, name: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(run.path))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def interrupt(run: RunFolder) -> None:
    """As if it had been killed."""
    write(run.status, {**read_json(run.status), "status": "interrupted", "reason": "SIGTERM"})


def write(path, content) -> None:
    path.write_text(json.dumps(content))


# fit --resume


def test_a_resumed_run_goes_on_in_its_folder(run, folder):
    before = read_json(folder.metrics)
    done = run("fit", "--resume", "last", "--trainer.max_epochs", 3)
    assert done.code == 0, done.err
    assert "Not as in forecast_small/version_0: trainer.max_epochs: 2 -> 3." in done.err
    assert [path.name for path in folder.path.parent.iterdir()] == ["version_0"]
    metrics = read_json(folder.metrics)
    assert (metrics["epochs"], metrics["steps"]) == (3, before["steps"] // 2 * 3)
    steps = [step for step, _ in scalars(folder, "train/loss_step")]
    assert steps == list(range(metrics["steps"]))
    assert "max_epochs: 3" in folder.config.read_text()
    assert torch.load(folder.checkpoints / "last.ckpt", weights_only=True)["epoch"] == 2
    assert not list(folder.checkpoints.glob("*-v*.ckpt"))


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
    done = run("fit", "--resume", "forecast_small")
    assert done.code == 0
    assert "forecast_small/version_0 is finished: 2 epochs" in done.err
    assert folder.metrics.read_bytes() == before


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--trainer.max_epochs=1"], "forecast_small/version_0 has done 2 epochs: trainer.max_epochs can't be 1."),
        (["--trainer.max_epochs=3", "--model.width=16"], "don't fit the model as it is described here (model.width: 8"),
        (["--trainer.max_epochs=3", "--model=CifarCNN"], "another class of model (model: LSTMForecaster -> CifarCNN)"),
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
    assert "after batch 3, whose other batches depend on what was changed (data.batch_size: 48 -> 24)" in error(done)


def test_a_running_run_is_left_alone(run, folder, monkeypatch):
    monkeypatch.setattr(RunFolder, "state", lambda self: {"status": "running", "pid": 1})
    assert "is still running (process 1)" in error(run("fit", "--resume", "last"))


def test_a_damaged_checkpoint_is_skipped_loudly(run, folder):
    interrupt(folder)
    last = folder.checkpoints / "last.ckpt"
    last.write_bytes(last.read_bytes()[:5000])
    done = run("fit", "--resume", "last", "--trainer.max_epochs=3")
    assert done.code == 0, done.err
    assert f"warning: checkpoint {last.relative_to(folder.path.parents[2])} is damaged" in done.err
    assert torch.load(last, weights_only=True)["epoch"] == 2
    for path in folder.checkpoints.glob("*.ckpt"):
        path.write_bytes(b"")
    interrupt(folder)
    assert "holds none that is whole" in error(run("fit", "--resume", "last"))


def test_new_settings_of_the_optimizer_hold(run, folder):
    done = run("fit", "--resume", "last", "--trainer.max_epochs=3", "--model.optimizer.lr=0.001")
    assert done.code == 0, done.err
    assert "model.optimizer.lr: 0.005 -> 0.001" in done.err
    rates = dict(scalars(folder, "lr-Adam"))
    steps = read_json(folder.metrics)["steps"]
    assert rates[0] == pytest.approx(0.005)
    assert rates[steps - 1] == pytest.approx(0.001)


def test_other_loggers_stay_beside_the_folder(run, settings, tmp_path):
    csv = f"{{class_path: {CSVLogger.__module__}.CSVLogger, init_args: {{save_dir: csv}}}}"
    done = run("fit", "--config", CONFIG, *settings, "--trainer.max_epochs=1", "--trainer.logger", csv)
    assert done.code == 0, done.err
    assert list(tmp_path.glob("csv/*/*/metrics.csv"))
    assert RunFolder(tmp_path / "lightning_logs/forecast_small/version_0").metrics.is_file()


# fit --init_from


def test_weights_of_another_run(run, folder, settings):
    begun = run(
        "fit", "--config", CONFIG, *settings, "--init_from=forecast_small", "--trainer.max_epochs=1",
        "--model.optimizer.lr=1e-12", "--test_after_fit=false",
    )  # fmt: skip
    assert begun.code == 0, begun.err
    assert "8 of the model's 8 tensors match" in begun.err
    new = RunFolder(folder.path.with_name("version_1"))
    best = next(folder.checkpoints.glob("epoch=*.ckpt"))
    assert f"init_from: {best.relative_to(folder.path.parents[2])}" in new.config.read_text()
    there = torch.load(best, weights_only=True)["state_dict"]
    here = torch.load(new.checkpoints / "last.ckpt", weights_only=True)["state_dict"]
    for name, weight in there.items():
        torch.testing.assert_close(here[name], weight, atol=1e-8, rtol=0)

    part = run(
        "fit", "--config", CONFIG, *settings, f"--init_from={best}", "--trainer.max_epochs=1", "--model.width=9",
        "--test_after_fit=false",
    )  # fmt: skip
    assert part.code == 0, part.err
    assert "1 of the model's 8 tensors match" in part.err
    assert "Another shape there, so begun anew: network.network.rnn.weight_ih_l0" in part.err


def test_weights_of_something_else(run, folder, texts):
    done = run(
        "fit", "--config", CONFIGS / "text.yaml", "--data.dataset=csv", f"--data.path={texts}", "--init_from=last"
    )
    assert "none of its 8 tensors has the name and shape of one of the model's" in error(done)
    assert not (folder.path.parents[1] / "text").exists()


# test, validate and predict


@pytest.mark.parametrize("named", ["last", "best", "forecast_small", "lightning_logs/forecast_small/version_0"])
def test_a_run_is_tested_by_its_name(run, folder, named):
    before = read_json(folder.metrics)
    config = folder.config.read_bytes()
    write(folder.metrics, {**before, "test": None})
    done = run("test", "--run", named)
    assert done.code == 0, done.err
    after = read_json(folder.metrics)
    assert after == {**before, "test_checkpoint": before["best"]["checkpoint"]}
    assert [path.name for path in folder.path.parent.iterdir()] == ["version_0"]
    assert folder.config.read_bytes() == config
    assert {step for step, _ in scalars(folder, "test/mse")} == {before["steps"]}


def test_a_checkpoint_is_enough(run, folder, series, tmp_path):
    best = next(folder.checkpoints.glob("epoch=*.ckpt"))
    results = read_json(folder.metrics)["test"]
    assert run("validate", "--ckpt_path", best).code == 0
    assert read_json(folder.metrics)["val_checkpoint"] == best.name
    away = tmp_path / "away.ckpt"
    shutil.copy(best, away)
    shutil.rmtree(folder.path)
    done = run("test", "--run", away)
    assert done.code == 0, done.err
    assert f"{results['test/mse']:.4g}" in done.out
    assert "lies in no run folder: the results are printed, not kept" in done.err
    done = run("predict", "--ckpt_path", away, "--input", series)
    assert done.code == 0, done.err
    assert (tmp_path / "predictions.csv").is_file()
    assert not folder.path.exists()


def test_last_and_best_checkpoints(run, folder):
    """The best one is the one of the run's own records, not the newest file."""
    for which in ("best", "last"):
        assert run("test", "--run", "last", "--ckpt_path", which).code == 0
        tested = read_json(folder.metrics)["test_checkpoint"]
        assert (tested == read_json(folder.metrics)["best"]["checkpoint"]) == (which == "best")
    assert "no such file; give best, last or a file" in error(run("test", "--run", "last", "--ckpt_path", "lst"))


def test_results_on_other_settings_are_not_kept(run, folder):
    before = folder.metrics.read_bytes()
    done = run("test", "--run", "last", "--data.split=[0.5, 0.2, 0.3]")
    assert done.code == 0, done.err
    assert "the results are printed, not kept" in done.err
    assert folder.metrics.read_bytes() == before


def test_predictions_lie_in_the_run(run, folder, series):
    done = run("predict", "--run", "last", "--input", series)
    assert done.code == 0, done.err
    assert (folder.path / "predictions.csv").is_file()


def test_evaluation_needs_to_know_the_weights(run, folder):
    assert "did you mean 'forecast_small'" in error(run("test", "--run", "forecast_smal"))
    assert "give --run RUN" in error(run("test", "--config", CONFIG))
    best = next(folder.checkpoints.glob("epoch=*.ckpt"))
    assert "leave --ckpt_path out" in error(run("test", "--run", best, "--ckpt_path", "last"))
    assert "give it as a flag, not in a config" in error(
        run("test", "--config", folder.config, "--config", '{"run": "x"}', "--ckpt_path", best)
    )

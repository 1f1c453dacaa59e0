"""Runs are resumed, tested and predicted with by their name alone."""

import csv
import json
import shutil
from pathlib import Path

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from litlab.runs import claim
from litlab.runs.folder import RunFolder, read_json
from tests.conftest import command
from tests.litlab.conftest import CONFIGS
from tests.litlab.runs.test_claim import held_by_another

CONFIG = CONFIGS / "series.yaml"


@pytest.fixture(scope="module")
def settings(series) -> list[str]:
    return [
        "--data.dataset=csv", f"--data.path={series}", "--data.targets=[load]", "--data.context_length=48",
        "--data.horizon=24", "--data.batch_size=48", "--data.split=[0.6, 0.2, 0.2]", "--trainer.accelerator=cpu",
        "--model.hidden_size=8", "--trainer.log_every_n_steps=1", "--trainer.callbacks=[]",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def fitted(settings, tmp_path_factory):
    """A run of two epochs."""
    folder = tmp_path_factory.mktemp("fitted")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        torch.set_num_threads(1)
        name = "--checkpoint.filename={epoch}-{val/mse:.3f}"
        assert command(patch, "fit", "--config", CONFIG, *settings, "--trainer.max_epochs=2", name, package="acme") == 0
    return folder / "lightning_logs"


@pytest.fixture
def folder(fitted, tmp_path) -> RunFolder:
    """A copy of that run, in the folder that commands run in."""
    shutil.copytree(fitted, tmp_path / "lightning_logs")
    return RunFolder(tmp_path / "lightning_logs/series/version_0")


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


def test_damaged_files_do_not_keep_a_run_from_going_on(run, folder):
    """All that is needed is in the checkpoint; what was damaged is kept under another name."""
    metrics, config = read_json(folder.metrics), folder.config.read_text()
    half = config.partition("\ndata:")[0].encode()
    for path, content in zip(folder_files(folder), (b"", b'{"val": 3}', b"\xff", half), strict=True):
        path.write_bytes(content)
    tested = run("test", "--run", "last")
    assert tested.code == 0, tested.err
    assert "config.yaml is damaged (it has no 'data'): the config in last.ckpt is used." in tested.err
    folder.metrics.write_bytes(b"[")
    done = run("fit", "--resume", "last")
    assert done.code == 0, done.err
    for path in folder_files(folder):
        line = next(line for line in done.err.splitlines() if line.startswith("warning: ") and path.name in line)
        number = 1 if path == folder.metrics else ""  # the test had renamed one
        assert line.endswith(f"renamed to {path.name}.damaged{number}, the run continues.")
        assert path.with_name(f"{path.name}.damaged").is_file()
    assert folder.config.read_text() == config
    assert folder.state()["status"] == "finished"
    new = read_json(folder.metrics)
    for name in ("val", "test", "best", "epochs", "steps"):
        assert new[name] == metrics[name]


def folder_files(run: RunFolder) -> tuple[Path, ...]:
    return run.status, run.metrics, run.provenance, run.config


def test_what_a_kill_between_two_checkpoint_files_left_is_completed(run, folder):
    """As if it had been killed before ``last.ckpt`` was written, and the best one before it removed."""
    last, best = folder.checkpoints / "last.ckpt", next(folder.checkpoints.glob("epoch=*.ckpt"))
    state = torch.load(best, weights_only=True)
    [callback] = [value for name, value in state["callbacks"].items() if name.startswith("RunCheckpoint")]
    old = folder.checkpoints / "epoch=0-val_mse=9.000.ckpt"
    mine = folder.checkpoints / "mine.ckpt"
    for path in (old, mine):
        shutil.copy(best, path)
    state["global_step"] -= 1
    path = str(Path(callback["dirpath"]) / old.name)
    callback |= {"best_model_path": path, "best_k_models": {path: callback["best_model_score"]}}
    torch.save(state, last)
    for path in (old, mine):
        torch.save(state, path)
    interrupt(folder)
    done = run("fit", "--resume", "last", "--test_after_fit=false")
    assert done.code == 0, done.err
    assert f"{old.name}, which {best.name} has replaced" in done.err
    assert sorted(path.name for path in folder.checkpoints.glob("*.ckpt")) == sorted([best.name, last.name, mine.name])
    assert last.read_bytes() == best.read_bytes()


# fit --resume auto


def test_the_same_command_resumes_until_the_run_is_finished(run, folder, settings):
    command = ["fit", "--config", CONFIG, *settings, "--checkpoint.filename={epoch}-{val/mse:.3f}", "--resume", "auto"]
    done = run(*command, "--trainer.max_epochs=2")
    assert done.code == 0
    assert "series/version_0 is finished: 2 epochs" in done.err
    interrupt(folder)
    done = run(*command, "--trainer.max_epochs=3", "--trainer.callbacks+=Baselines")
    assert done.code == 0, done.err
    assert "--resume auto: the newest run is series/version_0." in done.err
    assert "trainer.max_epochs: 2 -> 3" in done.err
    assert "model." not in next(line for line in done.err.splitlines() if line.startswith("Settings that differ"))
    assert read_json(folder.metrics)["epochs"] == 3
    assert read_json(folder.provenance)["continued"][-1]["command"][3:] == [
        "fit", *map(str, command[1:]), "--trainer.max_epochs=3", "--trainer.callbacks+=Baselines",
    ]  # fmt: skip
    interrupt(folder)
    assert run(*command, "--trainer.max_epochs=3", "--trainer.callbacks+=Baselines").code == 0
    assert folder.config.read_text().count("class_path: litlab.callbacks.Baselines") == 1
    assert [path.name for path in folder.path.parent.iterdir()] == ["version_0"]


def test_a_run_that_has_no_checkpoint_yet_is_started_again(run, folder, settings, monkeypatch):
    shutil.rmtree(folder.checkpoints)
    interrupt(folder)
    command = [
        "fit",
        "--config",
        CONFIG,
        *settings,
        "--resume=auto",
        "--trainer.max_epochs=1",
        "--test_after_fit=false",
    ]
    done = run(*command)
    assert done.code == 0, done.err
    assert "version_0 has no checkpoint to resume from: lightning_logs" in done.err
    assert RunFolder(folder.path.with_name("version_1")).state()["status"] == "finished"
    other = folder.path.with_name("version_2")
    other.mkdir()
    with held_by_another(other):  # which has not come so far as to be a run
        assert "series/version_2 is being started by another process" in error(run(*command))
    assert run(*command).code == 0  # it is gone, and version_1 is finished


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
    assert "holds no intact checkpoint" in error(run("fit", "--resume", "last"))


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


# fit --init_from


def test_weights_of_another_run(run, folder, settings):
    begun = run(
        "fit", "--config", CONFIG, *settings, "--init_from=series", "--trainer.max_epochs=1",
        "--model.optimizer.lr=1e-12", "--test_after_fit=false",
    )  # fmt: skip
    assert begun.code == 0, begun.err
    assert "6 of the model's 6 tensors match" in begun.err
    new = RunFolder(folder.path.with_name("version_1"))
    best = next(folder.checkpoints.glob("epoch=*.ckpt"))
    assert f"init_from: {best.relative_to(folder.path.parents[2])}" in new.config.read_text()
    there = torch.load(best, weights_only=True)["state_dict"]
    here = torch.load(new.checkpoints / "last.ckpt", weights_only=True)["state_dict"]
    for name, weight in there.items():
        torch.testing.assert_close(here[name], weight, atol=1e-8, rtol=0)

    part = run(
        "fit", "--config", CONFIG, *settings, f"--init_from={best}", "--trainer.max_epochs=1", "--model.hidden_size=9",
        "--test_after_fit=false",
    )  # fmt: skip
    assert part.code == 0, part.err
    assert "1 of the model's 6 tensors match" in part.err
    assert "Another shape there, so left as initialised: network.layers.0.weight" in part.err


def test_weights_of_something_else(run, folder, texts):
    done = run(
        "fit", "--config", CONFIGS / "text.yaml", "--data.dataset=csv", f"--data.path={texts}", "--init_from=last"
    )
    assert "none of the 6 tensors of lightning_logs/series/version_0/checkpoints/epoch=" in error(done)
    assert not (folder.path.parents[1] / "text").exists()


# test, validate and predict


def test_a_run_is_tested_by_its_name(run, folder):
    before = read_json(folder.metrics)
    config = folder.config.read_bytes()
    write(folder.metrics, {**before, "test": None})
    done = run("test", "--run", "best")
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
    assert "is not in a run's folder: the results are printed, but not saved" in done.err
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


def test_a_best_checkpoint_that_is_lost_is_not_replaced_by_the_last(run, folder, settings):
    best = next(folder.checkpoints.glob("epoch=*-val_mse=*.ckpt"))
    best.rename(folder.path / best.name)
    for arguments in (
        ["test", "--run", "last"],
        ["test", "--run", "last", "--ckpt_path", "best"],
        ["fit", "--config", CONFIG, *settings, "--init_from", "last"],
    ):
        assert f"its best checkpoint, lightning_logs/series/version_0/checkpoints/{best.name}, is missing" in error(
            run(*arguments)
        )
    assert run("test", "--run", "last", "--ckpt_path", "last").code == 0
    interrupt(folder)
    assert f"{best.name}: no such file" in error(run("fit", "--resume", "last"))
    state = folder.state()
    assert (state["status"], state["test"]) == ("failed", "pending")


def test_results_on_other_settings_are_not_kept(run, folder):
    before = folder.metrics.read_bytes()
    done = run("test", "--run", "last", "--data.split=[0.5, 0.2, 0.3]")
    assert done.code == 0, done.err
    assert "the results are printed, but not saved" in done.err
    assert folder.metrics.read_bytes() == before


def test_predictions_lie_in_the_run(run, folder, series):
    done = run("predict", "--run", "last", "--input", series)
    assert done.code == 0, done.err
    assert (folder.path / "predictions.csv").is_file()


def test_evaluation_needs_to_know_the_weights(run, folder):
    assert "did you mean 'series'" in error(run("test", "--run", "serie"))
    assert "give --run RUN" in error(run("test", "--config", CONFIG))
    best = next(folder.checkpoints.glob("epoch=*.ckpt"))
    assert "leave --ckpt_path out" in error(run("test", "--run", best, "--ckpt_path", "last"))
    assert "it is set in a config; give it as a flag" in error(
        run("test", "--config", folder.config, "--config", '{"run": "x"}', "--ckpt_path", best)
    )

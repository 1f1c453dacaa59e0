"""Runs are tested, validated and predicted with by their name alone."""

import shutil

from litlab.runs.folder import read_json, write_json
from tests.litlab.runs.conftest import CONFIG, error, scalars

NOT_SAVED = "The results are printed, but not saved: the checkpoint is in no run's folder"


def test_a_run_is_tested_by_its_name(run, folder):
    before = read_json(folder.metrics)
    config = folder.config.read_bytes()
    write_json(folder.metrics, {**before, "test": None})
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
    assert run("validate", "--run", best).code == 0
    assert read_json(folder.metrics)["val_checkpoint"] == best.name
    away = tmp_path / "away.ckpt"
    shutil.copy(best, away)
    shutil.rmtree(folder.path)
    done = run("test", "--run", away)
    assert done.code == 0, done.err
    assert f"{results['test/mse']:.4g}" in done.out
    assert NOT_SAVED in done.err
    done = run("predict", "--run", away, "--input", series)
    assert done.code == 0, done.err
    assert (tmp_path / "predictions.csv").is_file()
    assert not folder.path.exists()


def test_the_last_checkpoint(run, folder):
    assert run("test", "--run", "last", "--ckpt_path", "last").code == 0
    assert read_json(folder.metrics)["test_checkpoint"] == "last.ckpt"


def test_a_best_checkpoint_that_is_lost_is_not_replaced_by_the_last(run, folder, settings):
    best = next(folder.checkpoints.glob("epoch=*-val_mse=*.ckpt"))
    best.rename(folder.path / best.name)
    for arguments in (["test", "--run", "last"], ["fit", "--config", CONFIG, *settings, "--init_from", "last"]):
        assert f"there is no checkpoint lightning_logs/series/version_0/checkpoints/{best.name}" in error(
            run(*arguments)
        )


def test_results_on_other_settings_are_not_kept(run, folder):
    before = folder.metrics.read_bytes()
    done = run("test", "--run", "last", "--data.test_fraction=0.3")
    assert done.code == 0, done.err
    assert "the results are not saved" in done.err
    assert folder.metrics.read_bytes() == before

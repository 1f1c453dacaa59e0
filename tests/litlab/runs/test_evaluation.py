"""Runs are tested, validated and predicted with by their name alone, and their weights start other
runs.
"""

import shutil

import torch
import yaml

from litlab.runs.folder import RunFolder, read_json, write_json
from tests.litlab.runs.conftest import error, scalars
from tests.tiny_files import flip


def test_a_run_is_tested_by_its_name(run, folder):
    before, config = read_json(folder.metrics), folder.config.read_bytes()
    status = folder.status.read_bytes()
    write_json(folder.metrics, {**before, "test": None})
    run("test --run last").check()
    assert read_json(folder.metrics) == {**before, "test_checkpoint": before["best"]["checkpoint"]}
    assert folder.config.read_bytes() == config
    assert {step for step, _ in scalars(folder, "test/mse")} == {before["steps"]}

    metrics = folder.metrics.read_bytes()
    assert "the results are not saved" in run("test --run last --data.test_fraction=0.3").err
    assert folder.metrics.read_bytes() == metrics
    run("validate --run last --ckpt_path last").check()
    assert read_json(folder.metrics)["val_checkpoint"] == "last.ckpt"
    assert folder.status.read_bytes() == status
    assert [path.name for path in folder.path.parent.iterdir()] == ["version_0"]


def test_a_checkpoint_is_enough(run, folder, series, tmp_path):
    away = shutil.copy(next(folder.checkpoints.glob("epoch=*.ckpt")), tmp_path / "away.ckpt")
    results = read_json(folder.metrics)["test"]
    shutil.rmtree(folder.path)
    done = run("test --run", away).check()
    assert f"{results['test/mse']:.4g}" in done.out
    assert "not saved: the checkpoint is in no run's folder" in done.err
    run("predict --run", away, "--input", series).check()
    assert (tmp_path / "predictions.csv").is_file()
    assert not folder.path.exists()


def test_a_run_is_resumed_with_its_own_settings_or_to_train_longer(run, folder, settings):
    resume = ["fit", "--resume=series"]
    kept = "series/version_0: a resumed run keeps its settings (data.batch_size: 48 -> 24)"
    assert kept in error(run(*resume, "--data.batch_size=24"))
    config = yaml.safe_load(folder.config.read_text())
    del config["data"]["init_args"]["drop_last"], config["channels_last"]
    # As an older version wrote it, which lacked these settings
    folder.config.write_text(yaml.safe_dump(config))
    before = folder.metrics.read_bytes()
    done = run(*resume, "--trainer.devices=1")
    assert "series/version_0 is finished. Train it longer with" in done.err
    assert folder.metrics.read_bytes() == before
    run(*resume, "--trainer.max_epochs=3", "--test_after_fit=false").check()
    assert read_json(folder.metrics)["epochs"] == 3


def test_a_run_goes_on_with_its_own_data_alone(run, folder, series, tmp_path):
    changed = tmp_path / "series.csv"
    changed.write_text(series.read_text().replace("2024-02-01 00:00:00,", "2024-02-01 00:00:00,9"))
    before = folder.metrics.read_bytes()
    run(f"test --run=series --data.path={changed}").check()  # other data is what was asked for
    folder.metrics.write_bytes(before)
    # The path is the same
    folder.config.write_text(folder.config.read_text().replace(str(series), str(changed)))
    line = f"data: the contents of csv {changed} have changed since series/version_0"
    for command in ("test --run=series", "fit --resume=series --trainer.max_epochs=3"):
        assert line in error(run(command))
        assert folder.metrics.read_bytes() == before
        run(command, "--data_changed").check()
        folder.metrics.write_bytes(before)


def test_a_fit_starts_with_the_weights_of_another_run(run, folder, settings):
    fit = ["fit", *settings, "--trainer.max_epochs=1", "--test_after_fit=false"]
    begun = run(*fit, "--init_from=series", "--model.optimizer.lr=1e-12").check()
    assert "6 of the model's 6 tensors match" in begun.err
    new = RunFolder(folder.path.with_name("version_1"))
    best = next(folder.checkpoints.glob("epoch=*.ckpt"))
    name = best.relative_to(folder.path.parents[2])
    assert f"init_from: {name}" in new.config.read_text()
    there = torch.load(best, weights_only=True)["state_dict"]
    here = torch.load(new.checkpoints / "last.ckpt", weights_only=True)["state_dict"]
    torch.testing.assert_close(here, there, atol=1e-8, rtol=0)

    best.rename(folder.path / best.name)
    for command in (["test --run series/version_0"], [*fit, "--init_from=series/version_0"]):
        assert f"there is no checkpoint {name}" in error(run(*command))


def test_damaged_checkpoints_are_refused_and_a_run_goes_on_from_the_newest_whole_one(
    run, folder, settings, series
):
    best, last = next(folder.checkpoints.glob("epoch=*.ckpt")), folder.checkpoints / "last.ckpt"
    bare = folder.path.parents[2] / "bare.pt"
    torch.save(torch.load(best, weights_only=True)["state_dict"], bare)
    for file in (best, last, bare):
        flip(file, 0.3)
    fit = ["fit", *settings, "--trainer.max_epochs=1"]
    resume = "fit --resume=series --trainer.max_epochs=3"
    for arguments in (
        ["test --run series"], ["validate --run", last], ["predict --run series --input", series],
        [*fit, "--init_from", bare], [*fit, "--init_from=series"], ["consolidate", last],
        ["export --run series --format pt2"], [resume],
    ):  # fmt: skip
        assert "is damaged)" in error(run(*arguments)), arguments
    flip(best, 0.3)
    done = run(resume).check()
    assert f"is damaged); {best.name} is used" in done.err
    assert read_json(folder.metrics)["epochs"] == 3
    assert [path.name for path in folder.path.parent.iterdir()] == ["version_0"]


def test_runs_share_a_folder_of_checkpoints_and_are_resumed_from_it(run, settings, tmp_path):
    flags = "--trainer.max_epochs=1 --test_after_fit=false --checkpoint.dirpath=shared".split()
    (tmp_path / "shared/series/version_0").mkdir(parents=True)  # of another project
    for _ in range(2):
        run("fit", *settings, *flags).check()
    first, second = (
        tmp_path / f"shared/series/{name}/last.ckpt" for name in ("version_0-1", "version_1")
    )
    before = second.read_bytes()
    run("fit --resume=series/version_0 --trainer.max_epochs=2").check()
    assert torch.load(first)["epoch"] == 2
    run("test --run=series/version_0 --ckpt_path=last").check()
    assert second.read_bytes() == before
    assert not list((tmp_path / "shared/series/version_0").iterdir())

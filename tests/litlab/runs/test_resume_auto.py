"""`fit --resume auto`: the same command starts a run and resumes it."""

import shutil

from litlab.runs.folder import RunFolder, read_json
from tests.litlab.runs.conftest import CONFIG, error, held_by_another, interrupt


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

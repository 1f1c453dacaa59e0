"""`fit --resume` where files of the run are damaged, or a kill has left them half done."""

import shutil
from pathlib import Path

import torch

from litlab.runs.folder import RunFolder, read_json
from tests.litlab.runs.conftest import error, interrupt


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

"""`python -m auks fit --seeds` and `--folds`: stopped, continued, extended, with fits that fail."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from litlab.checkpointing.io import load_torch_file
from litlab.runs import children
from litlab.runs.folder import RunFolder, read_json
from litlab.runs.results import measure_spreads
from tests.conftest import BRIEF, Outcome
from tests.litlab.conftest import CONFIGS
from tests.litlab.runs.conftest import error
from tests.litlab.runs.make import write_run
from tests.litlab.runs.trouble import COMMAND

GROUP = RunFolder(Path("lightning_logs/series/seeds_0"))
FIT = ["fit", "--config", CONFIGS / "series.yaml"]


@pytest.fixture
def fit(signals, children, run, small_data, monkeypatch) -> Callable[..., Outcome]:
    """Runs `fit` of two short epochs of the series experiment, in which `trouble` may befall a
    seed.
    """
    monkeypatch.setenv(COMMAND, str(os.getpid()))
    monkeypatch.setenv("COLUMNS", "200")
    more = """
        --trainer.max_epochs=2 --trainer.limit_train_batches=3 --allow_modules=tests
        --trainer.callbacks=tests.litlab.runs.trouble.Trouble --trainer.callbacks.file=trouble.json
    """.split()
    return lambda *arguments: run("fit", *small_data["series"], *BRIEF, *more, *arguments)


def list_fits(done: Outcome) -> list[str]:
    """The members that were fitted."""
    return [line for line in done.out.splitlines() if line.startswith("series/seeds_0/seed_")]


def list_results(run: Path) -> dict:
    """Metrics and weights of a run, without what they cost."""
    metrics = read_json(run / "metrics.json")
    weights = load_torch_file(run / "checkpoints/last.ckpt")["state_dict"]
    kept = {name: metrics[name] for name in ("val", "test", "best", "epochs", "steps")}
    return kept | {name: weight.tolist() for name, weight in weights.items()}


def test_a_group_is_stopped_and_continued(fit, run):
    """What fails does not stop the others; what comes out is bit for bit what single fits give."""
    trouble = Path("trouble.json")
    trouble.write_text('{"3": "raises", "7": "interrupted"}')
    done = fit("--seeds", "3,7")
    assert done.code == 130, done
    assert list_fits(done) == ["series/seeds_0/seed_3", "series/seeds_0/seed_7"]
    assert done.err.endswith("SIGINT: stopped; the same command continues\n")
    stopped = RunFolder(GROUP.path / "seed_7/version_0")
    state = stopped.read_state()
    assert [state[key] for key in ("status", "reason", "place")] == ["interrupted", "SIGINT", None]
    assert not stopped.traceback.is_file()
    assert "series/seeds_0  0 of 2, interrupted" in run("runs").out

    trouble.write_text("{}")
    done = fit("--seeds", "3,7")
    assert (done.code, list_fits(done)) == (0, ["series/seeds_0/seed_3", "series/seeds_0/seed_7"])
    # One started over, one resumed
    members = [GROUP.path / "seed_3/version_1", GROUP.path / "seed_7/version_0"]
    starts = [read_json(path / "status.json")["started"] for path in (GROUP.path, *members)]
    assert starts == sorted(starts), "the group was started first"
    expected = measure_spreads(read_json(member / "metrics.json") for member in members)["test/mse"]
    kept = [read_json(GROUP.metrics)[name]["test/mse"] for name in ("test", "deviation")]
    assert kept == [expected.mean, expected.deviation]
    assert f"{expected.mean:.4f} {expected.deviation:.4f}" in " ".join(done.out.split())
    assert "series/seeds_0  2 of 2" in run("runs").out
    assert len(json.loads(run("runs series/seeds_0 --json").out)) == 3

    fit("--seed_everything", 7).check()
    single = list_results(Path("lightning_logs/series/version_0"))
    assert single == list_results(members[1]) != list_results(members[0])


@pytest.fixture
def recorded(run, monkeypatch) -> Callable[..., list[tuple[str, ...]]]:
    """Runs the command with fits that only leave a run; returns their arguments."""

    def repeat_fits(*arguments: str, code: int = 0) -> list[tuple[str, ...]]:
        called: list[tuple[str, ...]] = []

        def leave_run(package: str, *words: str, log: None) -> int:
            called.append(words)
            [name] = [word.partition("=")[2] for word in words if word.startswith("--experiment=")]
            status = "failed" if code and len(called) == 1 else "finished"
            number = len(list(Path("lightning_logs", name).glob("version_*")))
            run = f"{name}/version_{number}"
            write_run(Path("lightning_logs"), run, status=status, test={"test/acc": 0.5})
            return int(status == "failed")

        monkeypatch.setattr(children, "run_child", leave_run)
        assert run(*FIT, *arguments).code == code
        return called

    return repeat_fits


def test_folds(recorded, run):
    images = "--data=ImageData"  # which can be cut into folds
    varied = [words[-2:] for words in recorded(images, "--folds=3", code=1)]
    assert varied == [
        (f"--experiment=series/folds_0/fold_{fold}", f"--data.fold={fold}/3") for fold in range(3)
    ]
    assert json.loads(run("runs --json").out)[0]["status"] == "failed"
    assert len(recorded(images, "--folds=3")) == 1  # the others are finished
    assert len(recorded(images, "--folds=2")) == 2
    groups = [row["run"] for row in json.loads(run("runs --json").out)]
    assert groups == ["series/folds_1", "series/folds_0"]


def test_a_damaged_file_of_one_run_is_named_and_the_others_count(recorded, run):
    recorded("--seeds", "0,1,2")
    file = GROUP.path / "seed_1/version_0/metrics.json"
    file.write_text("[")
    assert recorded("--seeds", "0,1,2", code=1) == []
    done = run(*FIT, "--seeds=0,1,2")
    assert f"{file}: it holds no JSON object" in done.out
    assert read_json(GROUP.status)["members"] == "2 of 3"


def test_a_group_has_the_same_settings(recorded, run):
    """However they are typed; further seeds join it."""
    assert len(recorded(*"--seeds 0,1 --trainer.max_epochs 3".split())) == 2
    again = ["--trainer.max_epochs=3", "--allow_modules=x", "--seeds=1,0"]
    assert recorded(*again) == []
    assert len(recorded("--trainer.max_epochs=3", "--seeds=2,1")) == 1
    assert read_json(GROUP.group)["members"] == [0, 1, 2]
    other = recorded("--trainer.max_epochs=4", "--seeds=1,0")
    assert "--experiment=series/seeds_1/seed_1" in other[0]
    with GROUP.lock():
        assert "another process trains it" in error(run(*FIT, *again[:1], "--seeds=0,1"))


BORING = "lightning.pytorch.demos.boring_classes.BoringDataModule"
MISTAKES = {
    "--seeds 7": "'7' is not valid; give two or more, each once, such as 0,1,2",
    "--seeds=0,-1": "'0,-1' is not valid",
    "--seeds=0,0": "'0,0' is not valid",
    f"--data={BORING} --folds=5": "no setting 'fold'",
    "--seeds=0,1 --resume auto": "--seeds: it doesn't go together with --resume",
    "--seeds=0,1 --folds=2": "--seeds: it doesn't go together with --folds",
    "--seeds=0,1 --trainer.logger=false": "no metrics are kept; unset them",
}


@pytest.mark.parametrize("flags", MISTAKES)
def test_mistakes_are_one_line_and_leave_nothing(run, flags):
    assert MISTAKES[flags] in error(run(*FIT, *flags.split()))
    assert not Path("lightning_logs").exists()


def test_a_group_is_started_by_one_process(run, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    assert "start it without torchrun or srun" in error(run(*FIT, "--seeds=0,1"))

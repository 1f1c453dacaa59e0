"""`python -m auks fit --seeds` and `--folds`: stopped, continued, extended, with fits that fail."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from litlab.checkpointing.io import load_torch_file
from litlab.commands.repeat import repeat
from litlab.runs.folder import RunFolder, read_json
from litlab.runs.results import spreads
from tests.conftest import Outcome
from tests.litlab.commands.repeat.trouble import COMMAND
from tests.litlab.conftest import CONFIGS
from tests.litlab.runs.make import write_run

GROUP = RunFolder(Path("lightning_logs/series/seeds_0"))


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Lets Ctrl-C come through: pytest-xdist ignores it in its workers."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def fit(ctrl_c, children, run, series, monkeypatch) -> Callable[..., Outcome]:
    """Runs `fit` of two short epochs of the series experiment, in which `trouble` may befall a seed."""
    monkeypatch.setenv(COMMAND, str(os.getpid()))
    monkeypatch.setenv("COLUMNS", "200")
    callbacks = [{"class_path": "tests.litlab.commands.repeat.trouble.Trouble", "init_args": {"file": "trouble.json"}}]
    settings = [
        "--data.dataset=csv", f"--data.path={series}", "--data.targets=[load]", "--data.val_fraction=0.2",
        "--trainer.max_epochs=2", "--trainer.limit_train_batches=3", "--trainer.log_every_n_steps=1",
        "--trainer.accelerator=cpu", f"--trainer.callbacks={json.dumps(callbacks)}", "--allow_modules=tests",
    ]  # fmt: skip
    trouble()
    return lambda *arguments: run("fit", "--config", CONFIGS / "series.yaml", *settings, *arguments)


def trouble(**kinds: str) -> None:
    """From now on that happens to the fits of some seeds: ``seed_1="raises"``."""
    Path("trouble.json").write_text(json.dumps({seed.removeprefix("seed_"): kind for seed, kind in kinds.items()}))


def fits(done: Outcome) -> list[str]:
    """The members that were fitted."""
    return [line for line in done.out.splitlines() if line.startswith("series/seeds_0/seed_")]


def results(run: Path) -> dict:
    """Metrics and weights of a run, without what they cost."""
    metrics = read_json(run / "metrics.json")
    weights = load_torch_file(run / "checkpoints/last.ckpt")["state_dict"]
    kept = {name: metrics[name] for name in ("val", "test", "best", "epochs", "steps")}
    return kept | {name: weight.tolist() for name, weight in weights.items()}


def test_a_group_is_stopped_continued_and_extended(fit, run):
    """What comes out is bit for bit what single fits give."""
    trouble(seed_7="interrupted")
    done = fit("--seeds", "3,7")
    assert done.code == 130, done
    assert fits(done) == ["series/seeds_0/seed_3", "series/seeds_0/seed_7"]
    assert done.err.endswith("SIGINT: stopped; the same command continues\n")
    assert RunFolder(GROUP.path / "seed_7/version_0").state()["reason"] == "SIGINT"
    assert "series/seeds_0  1 of 2, interrupted" in run("runs").out

    trouble()
    done = fit("--seeds", "3,7")
    assert (done.code, fits(done)) == (0, ["series/seeds_0/seed_7"])
    assert not (GROUP.path / "seed_7/version_1").exists()  # it was resumed

    done = fit("--seeds=7,2,3")
    assert (done.code, fits(done)) == (0, ["series/seeds_0/seed_2"])
    assert read_json(GROUP.group)["members"] == [3, 7, 2]
    metrics = [read_json(GROUP.path / f"seed_{seed}/version_0/metrics.json") for seed in (3, 7, 2)]
    expected = spreads(metrics)["test/mse"]
    kept = [read_json(GROUP.metrics)[name]["test/mse"] for name in ("test", "deviation", "interval")]
    assert kept == [expected.mean, expected.deviation, list(expected.interval or ())]
    assert f"{expected.mean:.4g} {expected.deviation:.2g}" in " ".join(done.out.split())
    assert "series/seeds_0  3 of 3" in run("runs").out
    assert len(json.loads(run("runs", "series/seeds_0", "--json").out)) == 3

    for seed in (3, 7):
        assert fit("--seed_everything", seed).code == 0
    single = [results(Path(f"lightning_logs/series/version_{number}")) for number in (0, 1)]
    assert single == [results(GROUP.path / f"seed_{seed}/version_0") for seed in (3, 7)]
    assert single[0] != single[1]


def test_a_fit_that_fails(fit, run):
    """The others go on; the same command tries it again from its start, unless another one is at it."""
    trouble(seed_0="raises")
    done = fit("--seeds", "0,1")
    assert (done.code, len(fits(done))) == (1, 2), done
    assert "series/seeds_0  1 of 2, failed" in run("runs").out
    trouble()
    done = fit("--seeds", "0,1")
    assert (done.code, fits(done)) == (0, ["series/seeds_0/seed_0"])
    assert (GROUP.path / "seed_0/version_1").exists()
    with GROUP.lock():
        done = fit("--seeds", "0,1")
    assert done.code == 2
    assert "error: series/seeds_0: another process trains it; wait until it ends, or stop it\n" in done.err


def test_a_fit_that_is_refused_runs_once(fit):
    done = fit("--data.path=nowhere.csv", "--seeds", "0,1,2")
    assert (done.code, len(fits(done))) == (2, 1), done
    assert [line for line in done.err.splitlines() if line.startswith("error: data.path: ")]


@pytest.fixture
def recorded(run, monkeypatch) -> Callable[..., list[tuple[str, ...]]]:
    """Runs the command with fits that only leave a finished run; returns their arguments."""

    def repeat_fits(*arguments: str) -> list[tuple[str, ...]]:
        called: list[tuple[str, ...]] = []

        def leave_run(package: str, *words: str) -> int:
            called.append(words)
            [name] = [word.partition("=")[2] for word in words if word.startswith("--experiment=")]
            write_run(Path("lightning_logs"), f"{name}/version_0", test={"test/acc": 0.5})
            return 0

        monkeypatch.setattr(repeat, "run_child", leave_run)
        assert run("fit", "--config", CONFIGS / "series.yaml", *arguments).code == 0
        return called

    return repeat_fits


def test_folds(recorded, run):
    flags = ["--data=tests.litlab.commands.repeat.trouble.Folds", "--allow_modules=tests"]
    varied = [words[-2:] for words in recorded(*flags, "--folds=3")]
    assert varied == [(f"--experiment=series/folds_0/fold_{fold}", f"--data.fold={fold}/3") for fold in range(3)]
    assert recorded(*flags, "--folds=3") == []  # all are finished
    assert len(recorded(*flags, "--folds=2")) == 2
    assert [row["run"] for row in json.loads(run("runs", "--json").out)] == ["series/folds_1", "series/folds_0"]


def test_a_group_has_the_same_settings(recorded):
    """However they are typed."""
    assert len(recorded("--seeds", "0,1", "--trainer.max_epochs", "3")) == 2
    assert recorded("--trainer.max_epochs=3", "--allow_modules=x", "--seeds=1,0") == []
    assert "--experiment=series/seeds_1/seed_1" in recorded("--trainer.max_epochs=4", "--seeds=1,0")[0]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--seeds", "7"], "'7' is not valid; give two or more, each once, such as 0,1,2"),
        (["--seeds", "0," + "9" * 5000], "is not valid; give two or more"),
        (["--seeds=0,-1"], "'0,-1' is not valid"),
        (["--seeds=0,0"], "'0,0' is not valid"),
        (["--seeds"], "--seeds: expected one argument"),
        (["--folds=0"], "'0' is not valid; it must be a whole number of at least 1"),
        (
            ["--data=lightning.pytorch.demos.boring_classes.BoringDataModule", "--folds=5"],
            "no setting 'fold'; repeat the fit with --seeds",
        ),
        (["--seeds=0,1", "--folds=5"], "not allowed with argument"),
        (["--seeds=0,1", "--resume", "last"], "--seeds: it doesn't go together with --resume"),
        (["--seeds=0,1", "--trainer.logger=false"], "no metrics are kept; unset them"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(run, arguments, line):
    done = run("fit", "--config", CONFIGS / "series.yaml", *arguments)
    assert done.code == 2, done
    [message] = [text for text in done.err.splitlines() if text != "Seed set to 0"]
    assert message.startswith("error: ")
    assert line in message
    assert not Path("lightning_logs").exists()


def test_one_of_several_processes_is_refused(run, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    assert "start it without torchrun or srun" in run("fit", "--config", CONFIGS / "series.yaml", "--seeds=0,1").err

"""What `fit --seeds` refuses, and which runs it continues."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from litlab.runs.git import WorkTree
from litlab.runs.seed_group import SeedGroup
from litlab.seeds import seeds
from litlab.seeds.fits import Fits
from litlab.seeds.settings import group_for, read_settings, settings_of

from litlab.callbacks import Compile
from litlab.cli.trainer import compile_cache, keep_compiled
from litlab.errors import UserError
from tests.litlab.conftest import CONFIGS
from tests.litlab.runs.make import COMMIT, write, write_run

CONFIG = {
    "seed_everything": 0,
    "experiment": "cifar",
    "model": {
        "class_path": "auks.images.SmallCNN",
        "init_args": {"width": 16, "limit": float("inf"), "api_key": "x1y2"},
    },
    "trainer": {"logger": None, "barebones": False, "fast_dev_run": False, "default_root_dir": None, "max_epochs": 2},
    "checkpoint": None,
    "init_from": None,
    "ckpt_path": None,
    "resume": None,
    "check": False,
}


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("", "--seeds: a seed is missing; give whole numbers"),
        ("0,,1", "--seeds: a seed is missing; give whole numbers"),
        ("0,1,", "--seeds: a seed is missing; give whole numbers"),
        ("0,-1", "--seeds: '-1' is not a seed; give whole numbers from 0 to 4294967295, such as 0,1,2"),
        ("0-4", "--seeds: '0-4' is not a seed"),
        ("0 1", "--seeds: '0 1' is not a seed"),
        ("1.5,2", "--seeds: '1.5' is not a seed"),
        ("1,4294967296", "--seeds: '4294967296' is not a seed"),
        ("0,1,0", "--seeds: 0 is named twice; remove one of them"),
        ("0,00", "--seeds: 0 is named twice; remove one of them"),
        ("3", "--seeds: 3 is one seed; give two or more, or use --seed_everything 3"),
    ],
)
def test_bad_seeds(refused, value, line):
    assert refused("--config", CONFIGS / "series.yaml", f"--seeds={value}").startswith(line)


@pytest.mark.parametrize(
    "flag",
    [
        ["--seed_everything", "1"], ["--resume=last"], ["--check"], ["--ckpt_path", "x"], ["--print_config"],
        ["--model.help", "SmallCNN"],
    ],
)  # fmt: skip
def test_flags_that_make_no_sense(refused, flag):
    line = f"{flag[0].partition('=')[0]}: it doesn't go together with --seeds; leave one of them out"
    assert refused("--seeds", "0,1", *flag) == line


def test_standard_input_can_be_read_once(refused):
    assert refused("--seeds", "0,1", "--config", "-").startswith("--config: each seed reads the config again")


def test_a_value_is_needed(refused):
    assert refused("--seeds") == "fit: argument --seeds: expected one argument"


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, "RANK"),
        ({"LOCAL_RANK": "0", "WORLD_SIZE": "1"}, "LOCAL_RANK"),
        ({"SLURM_NTASKS": "2", "SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}, "SLURM_NTASKS"),
    ],
)
def test_one_of_several_processes(refused, monkeypatch, variables, named):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    line = f"--seeds: start it without torchrun or srun ({named} is set); each fit starts its processes"
    assert refused("--seeds", "0,1") == line


def test_a_mistake_in_the_config_is_found_before_any_fit(tmp_path):
    """With processes as users have them."""
    mistake = ["--config", CONFIGS / "series.yaml", "--seeds", "0,1", "--trainer.max_epocs=2"]
    command = [sys.executable, "-m", "auks", "fit", *mistake]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    line = "error: --trainer.max_epocs: there is no such key; did you mean 'trainer.max_epochs'?\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)
    assert not list(tmp_path.iterdir())


def printed(**changes) -> str:
    return "printed by a module\n# lightning.pytorch==2.6.6\n" + yaml.safe_dump({**CONFIG, **changes})


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"ckpt_path": "a.ckpt"}, "ckpt_path: it is set in a config"),
        ({"check": True}, "check: it is set in a config"),
        ({"trainer": {"logger": False}}, "trainer: without a logger"),
        ({"trainer": {"barebones": True}}, "trainer: without a logger"),
        ({"trainer": {"fast_dev_run": 3}}, "trainer: without a logger"),
        (
            {"trainer": {"logger": [{"class_path": "lightning.pytorch.loggers.TensorBoardLogger"}]}},
            "trainer.logger: a T",
        ),
        ({"checkpoint": {"init_args": {"dirpath": "kept"}}}, "checkpoint.dirpath: it is one folder for all seeds"),
        ({"init_from": "last"}, "init_from: 'last' may be another run for each seed"),
        ({"init_from": "cifar"}, "init_from: 'cifar' may be another run for each seed"),
    ],
)
def test_settings_that_would_mix_the_seeds_up(tmp_path, monkeypatch, changes, line):
    monkeypatch.chdir(tmp_path)
    write_run(Path("lightning_logs"), "cifar/version_0")
    with pytest.raises(UserError, match=line):
        read_settings(printed(**changes))


def test_settings_as_they_are_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(Path("lightning_logs"), "cifar/version_0")
    logger = {"class_path": "lightning.pytorch.loggers.CSVLogger"}
    assert read_settings(printed()) == CONFIG
    assert read_settings(printed(init_from="cifar/version_0", trainer={"logger": logger}))["init_from"]


@pytest.fixture
def group(tmp_path, monkeypatch) -> SeedGroup:
    """A group with the settings of `CONFIG`, and a later one with another width."""
    monkeypatch.chdir(tmp_path)
    for number, width in enumerate((16, 32)):
        settings = settings_of(changed(width=width))
        folder = Path(f"lightning_logs/cifar/seeds_{number}")
        folder.mkdir(parents=True)
        write(folder / "seeds.json", seeds=[0, 1], runs={}, config=settings)
    return SeedGroup(Path("lightning_logs/cifar/seeds_0"))


def changed(**model) -> dict:
    return {**CONFIG, "model": {**CONFIG["model"], "init_args": {**CONFIG["model"]["init_args"], **model}}}


def test_the_group_with_the_same_settings_is_continued(group, capsys):
    assert group_for(CONFIG) == group
    assert group_for({**CONFIG, "seed_everything": 5, "allow_modules": "mylib"}) == group
    assert group_for(changed(width=32)).name == "cifar/seeds_1"
    assert capsys.readouterr().out == ""


def test_other_settings_are_another_group(group, capsys):
    assert group_for(changed(width=64)).name == "cifar/seeds_2"
    line = "cifar/seeds_2 is a new group: cifar/seeds_1 has other settings (model.width: 32 -> 64).\n"
    assert capsys.readouterr().out == line
    assert group_for({**CONFIG, "experiment": "mine"}).name == "mine/seeds_0"
    assert group_for({**CONFIG, "trainer": {**CONFIG["trainer"], "default_root_dir": "there"}}).path.parts[0] == "there"
    assert capsys.readouterr().out == ""


def test_a_folder_without_a_file_is_left_alone(group):
    (group.path.parent / "seeds_7").mkdir()
    assert group_for(changed(width=64)).name == "cifar/seeds_8"


def test_secrets_are_not_kept():
    assert "x1" not in json.dumps(settings_of(CONFIG))


def test_an_experiment_must_have_a_valid_name(group):
    with pytest.raises(UserError, match=r"experiment: 'last' means another run"):
        group_for({**CONFIG, "experiment": "last"})


def test_other_code_is_noted(tmp_path, monkeypatch):
    run = write_run(tmp_path / "lightning_logs", "cifar/seeds_0/seed_0/version_0")
    codes = [WorkTree(commit=COMMIT), WorkTree(commit="f" * 40), WorkTree(commit=COMMIT, digest="d")]
    monkeypatch.setattr(seeds, "work_tree", lambda: codes.pop(0))
    assert seeds._other_code([run]) == ""
    for _ in range(2):
        assert seeds._other_code([run]).startswith(f"the code has changed since {run.name}")


def test_whether_a_fit_began():
    """A run that somebody else trains goes on meanwhile: its seconds say nothing."""
    running = {"status": "running", "started": "2026-05-20T12:00:00", "seconds": 3.0}
    assert not seeds._began({}, {})
    assert not seeds._began(running, {**running, "seconds": 9.0})
    assert seeds._began({}, {**running, "status": "failed"})
    assert seeds._began(running, {**running, "started": "2026-05-20T13:00:00"})


@pytest.mark.parametrize(
    ("state", "resumed"),
    [
        ({"status": "interrupted"}, True),
        ({"status": "killed"}, True),
        ({"status": "failed", "test": None}, False),
        ({"status": "failed", "test": "pending"}, True),
    ],
)
def test_what_is_resumed(tmp_path, state, resumed):
    run = write_run(tmp_path, "cifar/seeds_0/seed_0/version_0")
    assert seeds._can_be_resumed(run, state) == resumed
    (run.checkpoints / "last.ckpt").unlink()
    assert not seeds._can_be_resumed(run, state)


def test_modules_that_the_command_names_may_be_in_the_run(tmp_path):
    config = tmp_path / "mine.yaml"
    config.write_text("model: {class_path: mylib.networks.Net}")
    assert seeds._allowed([f"--config={config}", "--allow_modules", "other,more"]) == [
        "--allow_modules=more,mylib,other"
    ]
    assert seeds._allowed(["--trainer.max_epochs=2"]) == []


def test_seeds_share_what_was_compiled():
    compiled = Compile(mode="default")
    keep_compiled([compiled], {"fast_dev_run": False, "barebones": False}, "night/cifar/seeds_0/seed_12")
    assert compiled.cache == compile_cache("night/cifar")


def test_handlers_of_signals_are_restored():
    before = [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with Fits():
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(signum) for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before

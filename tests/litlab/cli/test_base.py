"""``base:`` in a config file is as if its files were given in front of it."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from litlab.cli.bases import chain, with_bases
from litlab.cli.trust import trust_of
from litlab.errors import UserError
from litlab.sweep.spec import read_spec
from tests.litlab.conftest import BRIEF, CONFIGS
from tests.processes import Python, ranks

MINE = """\
base: [series.yaml, with/smoke.yaml]
experiment: mine
model.init_args.hidden_size: 12
trainer:
  callbacks+: {class_path: EMA}
"""


@pytest.fixture
def configs(tmp_path, monkeypatch) -> Path:
    """The team's configs in a folder of the working directory, and one that builds on two of them."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(CONFIGS, tmp_path / "configs")
    (tmp_path / "configs/mine.yaml").write_text(MINE)
    return tmp_path / "configs"


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)


def names(files: list[Path]) -> list[str]:
    return [file.stem for file in files]


# The order


def test_bases_are_in_front_of_their_file_where_the_file_is(configs):
    line = ["fit", "--seed_everything=1", "--config", "configs/mine.yaml", "--model.hidden_size", "3"]
    bases = ["--config=configs/series.yaml", "--config=configs/with/smoke.yaml"]
    assert with_bases(line) == [*line[:2], *bases, *line[2:]]


@pytest.mark.parametrize("form", [["--config=FILE"], ["-c", "FILE"], ["-cFILE"], ["-c=FILE"]], ids=str)
def test_every_form_of_the_flag(configs, form):
    line = [part.replace("FILE", "configs/mine.yaml") for part in form]
    assert len(with_bases(line)) == len(line) + 2
    assert with_bases(["--experiment", "configs/mine.yaml"]) == ["--experiment", "configs/mine.yaml"]


def test_paths_are_relative_to_the_file_that_names_them(configs, tmp_path, monkeypatch):
    (configs / "deep").mkdir()
    write(configs / "deep", leaf="base: ../mine.yaml\n", other=f"base: {configs}/series.yaml\n")
    assert chain(Path("configs/deep/leaf.yaml")) == [
        Path(f"configs/{name}.yaml") for name in ("series", "with/smoke", "mine", "deep/leaf")
    ]
    assert chain(Path("configs/deep/other.yaml"))[0] == Path("configs/series.yaml")
    monkeypatch.chdir(configs / "deep")
    assert chain(Path("leaf.yaml"))[0] == (configs / "series.yaml")


def test_what_several_build_on_is_there_once_before_them(tmp_path):
    write(
        tmp_path,
        common="a: 1",
        left="base: common.yaml",
        right="base: common.yaml",
        both="base: [left.yaml, right.yaml]",
    )
    assert names(chain(tmp_path / "both.yaml")) == ["common", "left", "right", "both"]


# What is parsed


def printed(run, *arguments: object) -> str:
    done = run("fit", *arguments, "--print_config")
    assert done.code == 0, done.err
    return done.out


def test_the_config_is_that_of_the_files_one_after_another(run, configs):
    own = configs / "own.yaml"
    own.write_text(MINE.partition("\n")[2])
    apart = ["--config", configs / "series.yaml", "--config", configs / "with/smoke.yaml", "--config", own]
    together = printed(run, "--config", configs / "mine.yaml")
    assert together == printed(run, *apart)
    config = yaml.safe_load(together)
    assert "base" not in config
    assert config["experiment"] == "mine"  # smoke.yaml has another
    assert config["model"]["init_args"]["hidden_size"] == 12
    assert [callback["class_path"].split(".")[-1] for callback in config["trainer"]["callbacks"]] == [
        "Baselines",
        "EMA",
    ]


def test_the_later_of_flags_and_files_wins(run, configs):
    write(configs, top="base: mine.yaml\nmodel: {init_args: {optimizer: {init_args: {lr: 1e-1}}}}\n")
    flag, file = ["--model.hidden_size=3", "--trainer.max_epochs=7"], ["--config", configs / "top.yaml"]
    after = yaml.safe_load(printed(run, *file, *flag))
    assert (after["model"]["init_args"]["hidden_size"], after["trainer"]["max_epochs"]) == (3, 7)
    assert after["model"]["init_args"]["optimizer"]["init_args"]["lr"] == 0.1
    before = yaml.safe_load(printed(run, *flag[1:], *file))
    assert (before["model"]["init_args"]["hidden_size"], before["trainer"]["max_epochs"]) == (12, 1)


def test_values_keep_their_types(run, configs):
    write(
        configs,
        top='base: series.yaml\nexperiment: "1e-3"\nseed_everything: 0x10\ncompile: null\ninit_from: 2024-01-01\n',
    )
    config = yaml.safe_load(printed(run, "--config", configs / "top.yaml"))
    assert [config[key] for key in ("experiment", "seed_everything", "compile")] == ["1e-3", 16, None]
    assert str(config["init_from"]) == "2024-01-01"


def test_an_overlay_with_a_base_is_applied_once(run, configs):
    write(configs, more="trainer: {callbacks+: {class_path: EMA}}\n", brief="base: [more.yaml, with/smoke.yaml]\n")
    files = [part for name in ("series", "more", "with/smoke") for part in ("--config", configs / f"{name}.yaml")]
    apart = printed(run, *files)
    assert len(yaml.safe_load(apart)["trainer"]["callbacks"]) == 2
    assert printed(run, "--config", configs / "series.yaml", "--config", configs / "brief.yaml") == apart


# What is refused

FILES = {
    "missing": ("a: 1\nbase: seris.yaml\n", "mine.yaml:2: base: seris.yaml: no such file; did you mean 'series.yaml'?"),
    "missing in a folder": (
        "base: [series.yaml, with/smok.yaml]",
        "mine.yaml:1: base: with/smok.yaml: no such file; did you mean 'with/smoke.yaml'?",
    ),
    "root": ("base: /", "mine.yaml:1: base: /: it is a folder; name a file in it"),
    "folder": ("base: with", "mine.yaml:1: base: with: it is a folder; name a file in it"),
    "no file at all": ("base: no/q", "mine.yaml:1: base: no/q: no such file; paths are relative to this file"),
    "zero byte": (r'base: "a\0b/c"', "mine.yaml:1: base: a b/c: no such file"),
    "itself": ("base: mine.yaml", "mine.yaml:1: base: configs/mine.yaml: the configs build on each other in a circle"),
    "each other": ("base: other.yaml", "other.yaml:2: base: configs/mine.yaml: the configs build on each other"),
    "by a link": ("base: link.yaml", "mine.yaml:1: base: configs/mine.yaml: the configs build on each other"),
    "twice": ("base: series.yaml\nbase: series.yaml", "mine.yaml:2: base: the key is there twice, first in line 1"),
    "damaged": ("base: damaged.yaml", "damaged.yaml:1: not valid YAML: it ends too early"),
    "a list": ("base: list.yaml", "list.yaml: the file holds a list; it needs keys and values"),
    "binary": ("base: binary.yaml", "binary.yaml: it is a binary file; give a YAML file"),
    **{
        name: (f"base: {value}", "mine.yaml:1: base: it must be a config file or a list of them, by their paths")
        for name, value in {
            "null": "null", "number": "3", "empty": "''", "empty list": "[]", "mapping": "{a: series.yaml}",
            "list of numbers": "[series.yaml, 3]", "list in a list": "[[series.yaml]]",
        }.items()
    },
    "key of the base": ("base: wrong.yaml", "wrong.yaml:3: model.hiden_size: SmallForecaster has no 'hiden_size'"),
    "key of the file": (
        "base:\n  - series.yaml\nmodel.init_args.hiden_size: 3",
        "mine.yaml:3: model.hiden_size: SmallForecaster has no 'hiden_size'; did you mean 'hidden_size'?",
    ),
    "not at the top": ("base: series.yaml\nmodel: {base: x.yaml}", "mine.yaml:2: model.base: SmallForecaster has no"),
    "another key": ("config: series.yaml", "mine.yaml: config: there is no such key; did you mean 'base'?"),
    "another key in a base": ("base: nested.yaml", "nested.yaml: config: there is no such key; did you mean 'base'?"),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_a_mistake_is_one_line_with_its_file(run, configs, case):
    content, says = FILES[case]
    write(configs, mine=content, other="\nbase: mine.yaml", damaged="a: {b: 1", list="- a", nested="config: mine.yaml")
    write(configs, wrong="base: series.yaml\nmodel.init_args:\n  hiden_size: 3\n")
    (configs / "binary.yaml").write_bytes(b"\x89PNG\0\0\1")
    (configs / "link.yaml").symlink_to(configs / "mine.yaml")
    done = run("fit", "--config", "configs/mine.yaml")
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert done.err.startswith(f"error: configs/{says}")


INLINE = {
    "{base: configs/mine.yaml}": "--config: base: only a config file can have one; name it with a --config in front",
    "{config: configs/mine.yaml}": "--config: config: there is no such key",
    "-": "standard input:2: base: only a config file can have one",
}


@pytest.mark.parametrize("value", INLINE)
def test_only_a_file_has_a_base(run, configs, monkeypatch, tmp_path, value):
    (tmp_path / "typed.yaml").write_text("experiment: x\nbase: configs/mine.yaml\n")
    with (tmp_path / "typed.yaml").open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        done = run("fit", "--config", value)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert done.err.startswith(f"error: {INLINE[value]}")


# Who is trusted


def test_a_base_is_trusted_as_if_it_were_on_the_command_line(configs):
    write(configs, mine="base: [series.yaml, own.yaml]\n", own="model: theirs.Net\n")
    trust = trust_of(["fit", "--config", "configs/mine.yaml"], foreign=False)
    assert trust.anything
    assert "theirs" in trust.modules


def test_a_base_that_a_run_has_left_is_foreign(configs):
    (configs / "run/checkpoints").mkdir(parents=True)
    write(configs, mine="base: run/config.yaml\nmodel: mine.Net\n", helper="model: evil.Net\n")
    write(configs / "run", config="model: evil.Net\n")
    trust = trust_of(["fit", "--config", "configs/mine.yaml"], foreign=False)
    assert (trust.anything, trust.modules) == (False, ("mine",))
    write(configs / "run", config="base: ../helper.yaml\n")  # which would count as the user's own
    with pytest.raises(UserError, match=r"run/config\.yaml:1: base: the config of a run is complete; remove the base"):
        trust_of(["fit", "--config", "configs/mine.yaml"], foreign=False)


# Runs and sweeps


def test_a_run_needs_its_bases_no_more(run, configs, tmp_path):
    done = run("fit", "--config", "configs/mine.yaml", *BRIEF, "--test_after_fit=false")
    assert done.code == 0, done.err
    folder = tmp_path / "lightning_logs/mine/version_0"
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert "base" not in config
    assert config["model"]["init_args"]["hidden_size"] == 12
    assert len(config["trainer"]["callbacks"]) == 2
    write(configs, series="model: nonsense")
    (configs / "with/smoke.yaml").unlink()
    assert run("fit", "--config", "configs/mine.yaml").err.startswith(
        "error: configs/mine.yaml:1: base: with/smoke.yaml: no"
    )
    for command in (["test", "--run", "mine"], ["fit", "--resume", "last", "--trainer.max_epochs=2"]):
        done = run(*command)
        assert done.code == 0, done.err
    assert "epoch 2/2" in done.out
    assert len(yaml.safe_load((folder / "config.yaml").read_text())["trainer"]["callbacks"]) == 2


def test_resume_auto_appends_once(run, configs, tmp_path):
    """The command is parsed twice: to find the run, and with the run's config in front."""
    command = ["fit", "--config", "configs/mine.yaml", *BRIEF, "--test_after_fit=false", "--resume", "auto"]
    for epochs in (1, 2):
        done = run(*command, f"--trainer.max_epochs={epochs}")
        assert done.code == 0, done.err
    [folder] = (tmp_path / "lightning_logs/mine").iterdir()
    assert len(yaml.safe_load((folder / "config.yaml").read_text())["trainer"]["callbacks"]) == 2


def test_every_process_reads_the_bases(configs, tmp_path):
    """Lightning starts the others with the arguments of the first one, which stay as they were typed."""
    flags = ["--trainer.strategy=ddp", "--trainer.devices=2", "--trainer.accelerator=cpu", "--test_after_fit=false"]
    command = ["-m", "auks", "fit", "--config", "configs/mine.yaml", *flags]
    processes = [Python(*command, cwd=tmp_path, environment=of_rank) for of_rank in ranks(2)]
    assert [process.wait() for process in processes] == [0, 0], [process.printed() for process in processes]
    [folder] = (tmp_path / "lightning_logs/mine").iterdir()
    made = json.loads((folder / "provenance.json").read_text())
    assert made["hardware"]["ranks"] == 2
    assert made["command"] == ["python", *command]
    assert len(yaml.safe_load((folder / "config.yaml").read_text())["trainer"]["callbacks"]) == 2


def test_a_sweep_knows_the_bases_of_its_base(configs):
    write(configs, leaf="base: mine.yaml\n")
    sweep = {"base": "leaf.yaml", "metric": "val/mse", "direction": "minimize", "trials": 1}
    write(configs, sweep=yaml.safe_dump({**sweep, "space": {"model.hidden_size": {"low": 8, "high": 32}}}))
    spec = read_spec(configs / "sweep.yaml")
    assert spec.base == [Path("configs/leaf.yaml")]
    before = spec.fingerprint()
    assert spec.fingerprint() == before
    (configs / "series.yaml").write_text(f"{(configs / 'series.yaml').read_text()}\ntest_after_fit: false\n")
    changed = {key for key, value in spec.fingerprint().items() if value != before[key]}
    assert changed == {"base"}


def test_a_sweep_on_a_config_with_a_base(run, configs, fork_server):
    sweep = {"base": "mine.yaml", "metric": "val/mse", "direction": "minimize", "trials": 1, "seeds": 1}
    sweep |= {"space": {"model.hidden_size": {"choices": [4]}}, "settings": {"trainer.accelerator": "cpu"}}
    write(configs, sweep=yaml.safe_dump(sweep))
    done = run("sweep", "--config", "configs/sweep.yaml")
    assert done.code == 0, done.err
    [file] = Path("lightning_logs/sweeps/sweep").rglob("config.yaml")
    config = yaml.safe_load(file.read_text())
    assert config["model"]["init_args"]["hidden_size"] == 4
    assert config["trainer"]["limit_train_batches"] == 2  # of smoke.yaml
    assert len(config["trainer"]["callbacks"]) == 2

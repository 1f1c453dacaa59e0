"""Runs and bases become flags: command line in, command line out."""

import re
import shutil
from pathlib import Path

import pytest
import torch

from litlab.cli.argv import read_command_line
from litlab.cli.config import Command
from litlab.errors import UserError
from tests.conftest import BRIEF
from tests.litlab.conftest import CONFIGS
from tests.litlab.runs.make import write, write_run

LOGS = "lightning_logs"


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A working directory with configs that build on each other, and two runs of the experiment
    `mine`.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    (tmp_path / "deep").mkdir()
    for name, text in {
        "plain": "experiment: mine",
        "left": "base: plain.yaml",
        "right": "base: [plain.yaml]",
        "both": "{base: [left.yaml, right.yaml], experiment: both}",
        "other": "experiment: other",
        "deep/leaf": "base: ../left.yaml",
        "circle": "base: circle.yaml",
        "lost": "base: plan.yaml",
    }.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    typed = "python -m auks fit --config plain.yaml --model.width=4 --trainer.callbacks+ A".split()
    for number in (0, 1):
        name = f"mine/version_{number}"
        run = write_run(tmp_path / LOGS, name, hours_ago=2 - number, command=typed)
        for name in ("last", "best", "other"):
            torch.save({"global_step": number}, run.checkpoints / f"{name}.ckpt")
    return tmp_path


RUN = f"{LOGS}/mine/version_1"
PINNED = {
    "fit --config plain.yaml": "fit --config plain.yaml",
    "fit --resume last --trainer.max_epochs 9": f"fit --resume {RUN} --trainer.max_epochs 9",
    "fit --resume mine/version_0": f"fit --resume {LOGS}/mine/version_0",
    # The run has its own settings; what was not typed when it started is compared with them.
    "fit --config plain.yaml --resume auto --model.width 4": f"fit --resume {RUN}",
    "fit --config plain.yaml --resume auto --trainer.callbacks+=A": f"fit --resume {RUN}",
    "fit --config plain.yaml --resume auto --seed_everything 1": f"fit --resume {RUN} "
    "--seed_everything=1",
    "fit --config left.yaml --model.width=8 --resume=auto": f"fit --resume {RUN} "
    "--config=left.yaml --model.width=8",
    "fit --config other.yaml --resume auto": "fit --config other.yaml",
    "test --run mine": f"test --run {RUN}",
    f"test --run {RUN}/checkpoints/other.ckpt": f"test --run {RUN}/checkpoints/other.ckpt",
    "test --config plain.yaml --ckpt_path a.ckpt": "test --config plain.yaml --ckpt_path a.ckpt",
}
OF_RUN = f"--config={RUN}/config.yaml --ckpt_path={RUN}/checkpoints"
EXPANDED = {
    "fit --config plain.yaml --x 1": "fit --config plain.yaml --x 1",
    "fit -c deep/leaf.yaml": "fit --config=plain.yaml --config=left.yaml -c deep/leaf.yaml",
    "fit --config=both.yaml": "fit --config=plain.yaml --config=left.yaml --config=right.yaml "
    "--config=both.yaml",
    f"fit --resume {RUN} --x 1": f"fit {OF_RUN}/last.ckpt --resume={RUN} --x 1",
    f"test --run {RUN}": f"test {OF_RUN}/best.ckpt --run={RUN}",
    f"test --run {RUN} --ckpt_path {RUN}/checkpoints/other.ckpt": f"test {OF_RUN}/other.ckpt "
    f"--run={RUN}",
}
REFUSED = {
    "fit --resume nothing": "nothing: there is no such run",
    f"test --run {RUN} --ckpt_path gone.ckpt": "mine/version_1: there is no checkpoint gone.ckpt",
    "fit --config circle.yaml": "circle.yaml: base: circle.yaml: the configs build on each other "
    "in a circle",
    "fit --config lost.yaml": "plan.yaml: no such file",
}


@pytest.mark.parametrize("line", PINNED)
def test_a_run_is_named_by_its_folder(here, line):
    pinned = read_command_line(line.split()).pinned
    assert " ".join(pinned) == PINNED[line]
    # Other processes of a command do it once more
    assert read_command_line(pinned).pinned == pinned


@pytest.mark.parametrize("line", EXPANDED)
def test_runs_and_bases_become_flags(here, line):
    assert " ".join(read_command_line(line.split()).flags) == EXPANDED[line].partition(" ")[2]


@pytest.mark.parametrize("line", REFUSED)
def test_what_can_not_become_flags(here, line):
    with pytest.raises(UserError, match=re.escape(REFUSED[line])):
        read_command_line(line.split())


def test_a_requeued_job_resumes_its_own_run(here, monkeypatch):
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    line = ["fit", "--config", "plain.yaml"]
    assert read_command_line(line).run is None, "the newest run is another job's"
    older = f"{LOGS}/mine/version_0"
    write(here / older / "status.json", started="2026-01-01T00:00:00+00:00", slurm_job_id="7")
    assert read_command_line(line).pinned == ["fit", "--resume", older]
    monkeypatch.delenv("SLURM_RESTART_COUNT")
    assert read_command_line([*line, "--resume", "auto"]).pinned == ["fit", "--resume", older]
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    assert read_command_line([*line, "--resume", "auto"]).pinned == ["fit", "--resume", RUN]


@pytest.mark.parametrize(
    "text", ["trainer: {default_root_dir: $}", "trainer.default_root_dir: $", "base: root.yaml"]
)
def test_auto_looks_for_runs_where_the_config_puts_them(here, monkeypatch, text):
    (here / "root.yaml").write_text("trainer:\n  default_root_dir: elsewhere\n")
    (here / "mine.yaml").write_text(f"experiment: mine\n{text.replace('$', '${SCRATCH}')}\n")
    monkeypatch.setenv("SCRATCH", "elsewhere")
    shutil.copytree(here / LOGS, here / "elsewhere" / LOGS)
    line = read_command_line("fit --config mine.yaml --resume auto".split())
    assert line.pinned[:3] == ["fit", "--resume", f"elsewhere/{RUN}"]


def test_a_run_needs_its_bases_no_more_and_resumes_with_its_own_settings(run, tmp_path):
    configs = Path(shutil.copytree(CONFIGS, tmp_path / "configs"))
    (configs / "mine.yaml").write_text(
        "base: [series.yaml, with/smoke.yaml]\nexperiment: mine\nmodel.init_args.hidden_size: 12\n"
        "trainer: {callbacks+: {class_path: EMA}}\n"
    )
    fit = ["fit", "--config=configs/mine.yaml", *BRIEF, "--test_after_fit=false"]
    done = run(*fit, "--trainer.fast_dev_run=false").check()
    assert "test/mse" not in done.out
    (configs / "series.yaml").write_text("experiment: mine")
    resumed = Command([*fit, "--resume=auto", "--trainer.max_epochs=2"])
    assert resumed.config.trainer.max_epochs == 2
    for config in (resumed.config, Command(["test", "--run", "mine"]).config):
        assert (config.base, config.model.init_args.hidden_size) == (None, 12)
        assert len(config.trainer.callbacks) == 2

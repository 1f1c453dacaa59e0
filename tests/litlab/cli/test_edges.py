"""What surrounds a run: the environment it starts in, and what libraries say of the classes that a config names."""

import json
import urllib.error
from pathlib import Path

import pytest
import torch
from torch import nn

from litlab.cli.environment import check_variables
from litlab.cli.resources import WithinMemory
from litlab.cli.user_message import user_message
from litlab.errors import UserError
from litlab.util.refusals import refusals
from tests.litlab.conftest import CONFIGS

SMALL = ["--config", CONFIGS / "series.yaml", "--config", CONFIGS / "with/smoke.yaml"]
SMALL += ["--trainer.accelerator=cpu", "--trainer.callbacks=null", "--test_after_fit=false"]
PARTS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_JOB_NAME", "TORCHELASTIC_RUN_ID")


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"RANK": "x"}, "environment: RANK is 'x'; it must be a whole number of at least 0"),
        ({"LOCAL_RANK": "-1"}, "environment: LOCAL_RANK is '-1'"),
        ({"LOCAL_RANK": "3"}, "environment: LOCAL_RANK is 3, but WORLD_SIZE is not set"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "environment: RANK is 2, but WORLD_SIZE is 2"),
        ({"WORLD_SIZE": "0"}, "environment: WORLD_SIZE is '0'"),
        ({"MASTER_PORT": "99999"}, "environment: MASTER_PORT is '99999'; it must be a whole number from 1 to 65535"),
        ({"MASTER_ADDR": "no host"}, "environment: MASTER_ADDR is 'no host'"),
        ({"SLURM_RESTART_COUNT": "x"}, "environment: SLURM_RESTART_COUNT is 'x'"),
        ({"SLURM_JOB_ID": "abc"}, "environment: SLURM_JOB_ID is 'abc'"),
        ({"SLURM_NTASKS": "2"}, "environment: SLURM_NTASKS is set without SLURM_PROCID"),
        ({"TORCHELASTIC_RUN_ID": "1"}, "environment: TORCHELASTIC_RUN_ID is set without RANK, LOCAL_RANK"),
    ],
)
def test_a_launchers_variables_are_checked_before_lightning_reads_them(run, monkeypatch, variables, says):
    for name in PARTS:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = run("fit", "--config", "none.yaml")
    assert done.code == 2
    assert done.err.startswith(f"error: {says}")
    assert done.err.count("\n") == 1


def test_what_launchers_set_passes(monkeypatch):
    for name in PARTS:
        monkeypatch.delenv(name, raising=False)
    for name, value in {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    check_variables()


def test_a_working_directory_that_is_gone(run, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    done = run("runs")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert done.err.startswith("error: working directory: No such file or directory; change to another one")


def in_list(section: str, name: str, **arguments: object) -> str:
    return f"--trainer.{section}={json.dumps([{'class_path': name, 'init_args': arguments}])}"


PLUGINS = "lightning.pytorch.plugins"
REFUSED = {
    "logger in a list": ([in_list("logger", "CometLogger")], "trainer.logger[0]: CometLogger: a package is missing"),
    "precision": (
        [in_list("plugins", f"{PLUGINS}.BitsandbytesPrecision", mode="nf4")],
        "trainer.plugins[0]: BitsandbytesPrecision: a package is missing; pip install 'bitsandbytes'",
    ),
    "accelerator": (["--trainer.accelerator=tpu"], "trainer: a package is missing; pip install 'torch_xla"),
    "trainer": (
        ["--trainer.val_check_interval=1000"],
        "trainer: `val_check_interval` (1000) must be less than or equal",
    ),
    "profiler": (["--trainer.profiler=nonsense"], "trainer.profiler: there is no profiler 'nonsense'; choose simple, "),
    "one of two of a class": (
        [in_list("callbacks", "EarlyStopping", monitor="val/mse", mode="up")],
        "trainer.callbacks[0]: EarlyStopping: `mode` can be min, max, got up",
    ),
    "two of one kind": (
        ['--early_stopping={"monitor": "val/mse"}', in_list("callbacks", "EarlyStopping", monitor="val/mse")],
        "trainer: Found more than one stateful callback of type `EarlyStopping`",
    ),
    "memory": (["--model.hidden_size=10000000"], "model: SmallForecaster: a tensor of 10000000 x 10000000 numbers"),
    "logs": ([], "lightning_logs: "),  # a file of that name
    "long name": (["--experiment=" + "a" * 300], "experiment: a name of 300 characters is too long"),
    "optimizer": (
        ["--model.optimizer=Adam", "--model.optimizer.fused=true", "--model.optimizer.foreach=true"],
        "model.optimizer: `fused` and `foreach` cannot be `True` together",
    ),
    "step": (["--model.optimizer=SparseAdam"], "model.optimizer: SparseAdam: SparseAdam does not support dense"),
    "scheduler": (
        [f"--model.schedule.scheduler{end}" for end in ("=StepLR", ".step_size=1", ".last_epoch=5")],
        "model.schedule.scheduler: KeyError: param 'initial_lr' is not specified",
    ),
    "callback": (
        [in_list("callbacks", "BackboneFinetuning")],
        "trainer.callbacks: BackboneFinetuning freezes model.backbone, which SmallForecaster does not have",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_libraries_refuse_is_one_line_with_its_key(run, tmp_path, case):
    flags, says = REFUSED[case]
    if case == "logs":
        (tmp_path / "lightning_logs").write_text("")
    done = run("fit", *SMALL, *flags)
    assert done.code == 2
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.err
    assert says in errors[0]
    assert "Traceback" not in done.err


def test_a_fit_without_a_step_is_recorded_as_failed(run, tmp_path):
    done = run("fit", *SMALL, "--trainer.max_time=00:00:00:00")
    assert done.code == 2
    assert "error: fit: nothing was trained, as there was no training batch or no time; check the training" in done.err
    status = json.loads((tmp_path / "lightning_logs/smoke/version_0/status.json").read_text())
    assert status["status"] == "failed"


def test_pre_trained_weights_without_a_network_name_the_file_to_save(run, images, tmp_path, monkeypatch):
    def offline(*_, **__):
        raise urllib.error.URLError(OSError(-2, "Name or service not known"))

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr("torch.hub.download_url_to_file", offline)
    done = run(
        "fit", "--config", CONFIGS / "images.yaml", "--data.dataset=folder", f"--data.path={images}",
        "--trainer.accelerator=cpu", "--model=Classifier", "--model.network=torchvision.models.squeezenet1_1",
        "--model.network.weights=IMAGENET1K_V1",
    )  # fmt: skip
    assert done.code == 2
    line = done.err.splitlines()[-1]
    assert line.startswith("error: model.network: the weights ")
    assert "save https://download.pytorch.org/models/squeezenet1_1-b8a52dc0.pth as " in line
    assert f"{tmp_path}/torch/hub/checkpoints/squeezenet1_1-b8a52dc0.pth" in line


def test_networks_are_refused_before_they_fill_the_memory():
    with WithinMemory() as memory:
        nn.Linear(10, 10)
        torch.empty(2**50, device="meta")  # takes none
        with pytest.raises(MemoryError, match="is more than the free memory holds"):
            torch.empty(memory.left // 4 + 2**20)
        with pytest.raises(MemoryError, match="choose smaller sizes"):
            nn.Linear(10**9, 10**9)


def test_a_bug_keeps_its_traceback_and_a_librarys_word_does_not():
    def bug():
        return {}["missing"]

    with pytest.raises(KeyError), refusals("model"):
        bug()
    with pytest.raises(UserError, match=r"model: .*negative dimension"), refusals("model"):
        nn.Linear(-1, 1)
    with pytest.raises(UserError, match=r"model: .*required positional argument"), refusals("model"):
        torch.optim.SGD()  # pyright: ignore[reportCallIssue]


def test_a_file_that_can_not_be_used_is_named_with_its_reason(tmp_path):
    def message(error: OSError) -> str | None:
        return user_message(error)

    assert message(PermissionError(13, "Permission denied", "a.csv")) == "a.csv: Permission denied"
    assert message(OSError(28, "No space left on device")) == "No space left on device"
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError) as error:
        Path(tmp_path / "file/below").read_text()
    assert message(error.value) == f"{tmp_path}/file/below: Not a directory"
    assert message(FileNotFoundError(2, "No such file or directory", "x")) is None  # more likely a bug

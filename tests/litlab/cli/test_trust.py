"""Foreign checkpoints, run folders and configs: whatever they name, nothing of it is called or imported."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from litlab.artifact import is_exported
from litlab.checkpointing.callback import RunCheckpoint
from litlab.cli.argv import read_command_line
from litlab.cli.classes import check_names, restrict_imports
from litlab.errors import UserError
from tests.litlab.conftest import CONFIGS

ALLOW = "add --allow_modules"
MAY_NOT = "the config of a run or checkpoint may not name"


def calls(path: str, /, **init_args: Any) -> dict[str, Any]:
    return {"class_path": path, "init_args": init_args}


LATER = "lightning.pytorch.callbacks.LambdaCallback"  # calls something later
TOUCH = {"command": "touch MARK"}
WRITE = calls("litlab.util.files.write_text", path="MARK", text="written")
# What stands in the place of the optimizer or of a callback; what the line says of it.
FOREIGN: dict[str, tuple[str, Any, str]] = {
    "command": ("optimizer", calls("os.system", **TOUCH), f"{ALLOW} os"),
    "command through torch": ("optimizer", calls("torch.os.system", **TOUCH), ""),
    "a module of the folder": ("optimizer", "evil_module.Optimizer", f"{ALLOW} evil_module"),
    "torch.load": ("optimizer", calls("torch.load", f="evil.pkl", weights_only=False), MAY_NOT),
    "a function of ours": ("optimizer", WRITE, f"model.optimizer: {MAY_NOT} litlab.util.files.write_text"),
    "a class of ours elsewhere": ("optimizer", calls("litlab.data.ImageData", dataset="generated"), ""),
    "callable of torch": ("callbacks", calls(LATER, setup="torch.save"), f"{MAY_NOT} torch.serialization.save"),
    "callable with arguments": ("callbacks", calls(LATER, setup=WRITE), MAY_NOT),
    "callable class": ("callbacks", calls(LATER, setup=calls("torchvision.transforms.ToTensor")), MAY_NOT),
}


@pytest.fixture(scope="module")
def trained(fitted) -> dict[str, Any]:
    """A checkpoint, in memory, with the config it holds."""
    return torch.load(next(fitted.rglob("last.ckpt")), weights_only=True)


@pytest.fixture
def evil(tmp_path, monkeypatch) -> Path:
    """A file that must not appear; modules of the working directory can be imported, as with ``python -m``."""
    (tmp_path / "evil_module.py").write_text(
        f"import pathlib, torch\npathlib.Path({str(tmp_path / 'MARK')!r}).touch()\n"
        "class Optimizer(torch.optim.SGD): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "evil_module", None)  # and what a test imports of it, the next one does not have
    del sys.modules["evil_module"]
    return tmp_path / "MARK"


def poisoned(trained: dict[str, Any], name: str) -> dict[str, Any]:
    """The checkpoint with something foreign in its settings and in its config."""
    place, payload, _ = FOREIGN[name]
    config, settings = yaml.safe_load(trained["config"]), dict(trained["hyper_parameters"])
    if place == "optimizer":
        config["model"]["init_args"]["optimizer"] = settings["optimizer"] = payload
    else:
        config["trainer"]["callbacks"] = [payload]
    return {**trained, "config": yaml.safe_dump(config), "hyper_parameters": settings}


def run_folder(root: Path, checkpoint: dict[str, Any]) -> Path:
    folder = root / "lightning_logs/foreign/version_0"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.yaml").write_text(checkpoint["config"])
    (folder / "status.json").write_text("{}")
    torch.save(checkpoint, folder / "checkpoints/last.ckpt")
    return folder


def assert_refused(done, says: str, mark: Path) -> None:
    assert done.code == 2, done.err
    [line] = [line for line in done.err.splitlines() if "error: " in line]
    assert says in line
    assert "Traceback" not in done.err
    assert not mark.exists()


@pytest.mark.parametrize("name", FOREIGN)
def test_nothing_that_a_checkpoint_names_is_called(run, series, tmp_path, evil, trained, name):
    checkpoint = poisoned(trained, name)
    if [*FOREIGN].index(name) % 2:  # in turns: a file that lies in no run, and the folder of a run
        torch.save(checkpoint, tmp_path / "evil.ckpt")
        done = run("predict", "--run", "evil.ckpt", "--input", series)
    else:
        done = run("fit", "--resume", run_folder(tmp_path, checkpoint), "--trainer.max_epochs=2")
    assert_refused(done, FOREIGN[name][2], evil)


def test_beside_a_config_of_ones_own_only_the_weights_of_a_checkpoint_are_used(run, tmp_path, evil, trained):
    torch.save(poisoned(trained, "a module of the folder"), tmp_path / "evil.ckpt")
    (tmp_path / "mine.yaml").write_text(trained["config"])
    done = run("test", "--config", "mine.yaml", "--ckpt_path", "evil.ckpt")
    assert (done.code, evil.exists()) == (0, False), done.err


def test_only_allow_modules_trusts_a_module(run, series, tmp_path, evil, trained):
    """Not a value that looks like one: a file to write, a class of another setting."""
    torch.save(poisoned(trained, "a module of the folder"), tmp_path / "mine.ckpt")
    for flag in ("--output=evil_module.csv", "--trainer.profiler=evil_module.Profiler"):
        done = run("predict", "--run", "mine.ckpt", "--input", series, flag)
        assert_refused(done, ALLOW, evil)
    done = run("validate", "--run", "mine.ckpt", "--allow_modules=evil_module")
    assert done.code == 0, done.err
    assert evil.exists()


def test_the_config_of_a_run_is_foreign_under_its_own_name_too(tmp_path, trained):
    folder = run_folder(tmp_path, trained)
    assert read_command_line(["fit", "--config", f"{folder}/config.yaml"]).is_foreign
    assert not read_command_line(["fit", f"--config={CONFIGS / 'images.yaml'}"]).is_foreign
    (folder / "manifest.json").write_text('{"format": "aoti"}')
    assert not is_exported(folder), "which would be loaded as native code"


def test_a_checkpoint_names_no_file_outside_of_its_folder(tmp_path):
    """Lightning removes best checkpoints that are replaced, wherever the state of its callback says they are."""
    (tmp_path / "victim.ckpt").touch()
    keep = RunCheckpoint(str(tmp_path))
    name = "a/../../victim.ckpt"
    paths = dict.fromkeys(("best_model_path", "kth_best_model_path", "last_model_path"), name)
    keep.load_state_dict({**keep.state_dict(), **paths, "best_k_models": {name: 0.0}})
    assert list(keep.best_k_models) == [keep.best_model_path] == [str(tmp_path / "victim.ckpt")]


def test_functions_that_return_a_network_are_taken():
    import_module("torchvision.models")
    check_names({"model": {"network": calls("torchvision.models.resnet18")}}, [])
    with pytest.raises(UserError, match=r"model\.network: .* may not name torchvision.*list_models"):
        check_names({"model": {"network": calls("torchvision.models.list_models")}}, [])


@pytest.mark.parametrize("name", ["os", "*"])
def test_modules_that_can_not_be_allowed(name):
    with pytest.raises(UserError, match=r"^--allow_modules: a config may not name"):
        restrict_imports(True, f"mylib,{name}")

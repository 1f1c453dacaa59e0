"""Foreign checkpoints, run folders and configs: whatever they name, nothing of it is called or imported."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from litlab.artifact import is_exported
from litlab.checkpointing.callback import RunCheckpoint
from litlab.cli.argv import is_foreign
from litlab.cli.trust import check_names, restrict_imports
from litlab.errors import UserError
from tests.conftest import command
from tests.litlab.conftest import CONFIGS

ALLOW = "add --allow_modules"
NEVER = "can't be named in a config; it could run commands, load code or change files"
NOT_A_CLASS = "is not a class; name one, or a function annotated to return"


def calls(path: str, /, **init_args: Any) -> dict[str, Any]:
    return {"class_path": path, "init_args": init_args}


TOUCH = {"command": "touch MARK"}
WRITE = calls("litlab.runs.folder.write_text", path="MARK", text="written")
# What stands in the place of the optimizer: anything with arguments would be called with them.
OPTIMIZERS = {
    "command": calls("os.system", **TOUCH),
    "command by another name": calls("posix.system", **TOUCH),
    "command through torch": calls("torch.os.system", **TOUCH),
    "command through this project": calls("litlab.runs.provenance.os.system", **TOUCH),
    "process": calls("subprocess.check_output", args=["touch", "MARK"]),
    "process through lightning": calls("lightning.fabric.strategies.launchers.subprocess_script.subprocess.Popen"),
    "eval": calls("builtins.eval", source="open('MARK', 'w')"),
    "open": calls("builtins.open", file="MARK", mode="w"),
    "print": calls("builtins.print", sep="called"),
    "print by its name": "builtins.print",
    "a module of the folder": "evil_module.Optimizer",
    "a module of the folder as class": calls("evil_module.Optimizer"),
    "pickle": calls("pickle.load", file="evil.pkl"),
    "torch.load": calls("torch.load", f="evil.pkl", weights_only=False),
    "hub": calls("torch.hub.load", repo_or_dir="evil", model="x", source="local"),
    "compiler": calls("torch.utils.cpp_extension.load", name="x", sources=["evil.cpp"]),
    "a function of ours": WRITE,
    "a network": calls("torchvision.models.resnet18"),
    "a class elsewhere": calls("pathlib.Path", args=["MARK"]),
    "a class of ours elsewhere": calls("litlab.data.ImageData", dataset="generated"),
    "the parser": calls("jsonargparse.set_parsing_settings", import_path_allowlist=["os"]),
    "partial": calls("functools.partial", func="os.system"),
}
# What stands among the callbacks: callables in their arguments are called later.
CALLBACKS = {
    "callable": calls("lightning.pytorch.callbacks.LambdaCallback", setup="os.system"),
    "callable of the folder": calls("lightning.pytorch.callbacks.LambdaCallback", setup="evil_module.hook"),
    "callable of torch": calls("lightning.pytorch.callbacks.LambdaCallback", setup="torch.save"),
    "callable with arguments": calls(
        "lightning.pytorch.callbacks.LambdaCallback",
        setup=WRITE,
    ),
    "callable class": calls("lightning.pytorch.callbacks.LambdaCallback", setup=calls("evil_module.Callable")),
    "no callback": calls("litlab.commands.sweep.trial.Stopped"),
    "server": calls("lightning.pytorch.serve.ServableModuleValidator"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> dict[str, Any]:
    """A checkpoint of one step, in memory, with the config it holds."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        flags = [
            "--data.dataset=generated",
            "--trainer.max_epochs=1",
            "--trainer.accelerator=cpu",
            "--trainer.log_every_n_steps=1",
        ]
        limits = [f"--trainer.limit_{split}_batches=2" for split in ("train", "val")]
        assert command(patch, "fit", "--config", CONFIGS / "series.yaml", *flags, *limits, package="auks") == 0
    return torch.load(next(folder.rglob("last.ckpt")), weights_only=True)


@pytest.fixture
def evil(tmp_path, monkeypatch) -> Path:
    """A file that must not appear; modules of the working directory can be imported, as with ``python -m``."""
    (tmp_path / "evil_module.py").write_text(
        f"import pathlib, torch\npathlib.Path({str(tmp_path / 'MARK')!r}).touch()\n"
        "class Optimizer(torch.optim.SGD): ...\n"
        "class Callable:\n    def __call__(self, *args): ...\ndef hook(*args): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "evil_module", None)  # and what a test imports of it, the next one does not have
    del sys.modules["evil_module"]
    return tmp_path / "MARK"


def poisoned(trained: dict[str, Any], place: str, payload: Any) -> dict[str, Any]:
    """The checkpoint with something foreign in its settings and in its config."""
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


CASES = [("optimizer", name) for name in OPTIMIZERS] + [("callbacks", name) for name in CALLBACKS]


@pytest.mark.parametrize(("place", "name"), CASES, ids=lambda value: value)
def test_nothing_that_a_checkpoint_names_is_called(run, series, tmp_path, evil, trained, place, name):
    payload = (OPTIMIZERS if place == "optimizer" else CALLBACKS)[name]
    checkpoint = poisoned(trained, place, payload)
    if CASES.index((place, name)) % 2:  # in turns: a file that lies in no run, and the folder of a run
        torch.save(checkpoint, tmp_path / "evil.ckpt")
        done = run("predict", "--run", "evil.ckpt", "--input", series)
    else:
        done = run("fit", "--resume", run_folder(tmp_path, checkpoint), "--trainer.max_epochs=2")
    assert done.code == 2, done.err
    assert done.err.count("error: ") == 1, done.err
    assert "Traceback" not in done.err
    assert not evil.exists()
    assert "called" not in done.out


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (OPTIMIZERS["command"], f"'os.system' {NEVER}"),
        (OPTIMIZERS["a module of the folder"], f"{ALLOW} evil_module"),
        (OPTIMIZERS["a function of ours"], f"model.optimizer: litlab.runs.folder.write_text {NOT_A_CLASS} Optimizer"),
        (OPTIMIZERS["a network"], f"model.optimizer: torchvision.models.resnet18 {NOT_A_CLASS} Optimizer"),
    ],
)
def test_why_something_is_refused(run, tmp_path, evil, trained, payload, says):
    torch.save(poisoned(trained, "optimizer", payload), tmp_path / "evil.ckpt")
    done = run("test", "--ckpt_path", "evil.ckpt")
    assert (done.code, says in done.err, evil.exists()) == (2, True, False), done.err


def test_beside_a_config_of_ones_own_only_the_weights_of_a_checkpoint_are_used(run, tmp_path, evil, trained):
    checkpoint = poisoned(trained, "optimizer", OPTIMIZERS["a module of the folder"])
    torch.save(checkpoint, tmp_path / "evil.ckpt")
    (tmp_path / "mine.yaml").write_text(trained["config"])
    done = run("test", "--config", "mine.yaml", "--ckpt_path", "evil.ckpt")
    assert (done.code, evil.exists()) == (0, False), done.err


@pytest.mark.parametrize(
    ("flag", "payload", "says"),
    [
        ("--model.optimizer", OPTIMIZERS["command"], NOT_A_CLASS),
        ("--model.optimizer", OPTIMIZERS["command through torch"], NOT_A_CLASS),
        ("--model.optimizer", calls("builtins.print"), f"model.optimizer: builtins.print {NOT_A_CLASS}"),
        ("--model.optimizer", OPTIMIZERS["a network"], NOT_A_CLASS),
        ("--model.optimizer", OPTIMIZERS["torch.load"], NOT_A_CLASS),
        ("--trainer.callbacks+", CALLBACKS["callable with arguments"], NOT_A_CLASS),
    ],
)
def test_ones_own_config_is_code_but_not_anything(run, evil, flag, payload, says):
    text = yaml.safe_dump(payload, default_flow_style=True, width=1000).strip()
    done = run("fit", "--config", CONFIGS / "series.yaml", flag, text)
    assert (done.code, says in done.err, evil.exists()) == (2, True, False), done.err


def test_only_allow_modules_trusts_a_module(run, series, tmp_path, evil, trained):
    """Not a value that looks like one: a file to write, a name of checkpoints, a class of another setting."""
    torch.save(poisoned(trained, "optimizer", "evil_module.Optimizer"), tmp_path / "mine.ckpt")
    for flags in (
        ["--input", series, "--output", "evil_module.csv"],
        ["--input", series, "--checkpoint.filename", "evil_module.best"],
        ["--input", series, "--trainer.profiler", "evil_module.Profiler"],
    ):
        done = run("predict", "--run", "mine.ckpt", *map(str, flags))
        assert (done.code, ALLOW in done.err, evil.exists()) == (2, True, False), done.err
    done = run("validate", "--run", "mine.ckpt", "--allow_modules=evil_module")
    assert done.code == 0, done.err
    assert evil.exists()


def test_the_config_of_a_run_is_foreign_under_its_own_name_too(tmp_path, trained):
    folder = run_folder(tmp_path, trained)
    assert is_foreign(["fit", "--config", f"{folder}/config.yaml"])
    assert not is_foreign(["fit", f"--config={CONFIGS / 'images.yaml'}"])


def test_a_run_is_never_an_export(run, tmp_path, evil, trained):
    """An exported model is loaded as native code; a manifest that lies in a run's folder is none of its files."""
    folder = run_folder(tmp_path, trained)
    (folder / "manifest.json").write_text('{"format": "aoti"}')
    assert not is_exported(folder)
    done = run("test", "--run", folder, "--data.dataset=generated")
    assert done.code == 0, done.err


@pytest.mark.parametrize("name", ["/etc/victim.ckpt", "../victim.ckpt", "a/../../victim.ckpt"])
def test_a_checkpoint_names_no_file_outside_of_its_folder(tmp_path, name):
    """Lightning removes best checkpoints that are replaced, wherever the state of its callback says they are."""
    (tmp_path / "victim.ckpt").touch()
    keep = RunCheckpoint(str(tmp_path))
    paths = dict.fromkeys(("best_model_path", "kth_best_model_path", "last_model_path"), name)
    keep.load_state_dict({**keep.state_dict(), **paths, "best_k_models": {name: 0.0}})
    assert list(keep.best_k_models) == [str(tmp_path / "victim.ckpt")]
    assert keep.best_model_path == keep.last_model_path == str(tmp_path / "victim.ckpt")


@pytest.mark.parametrize("module", ["os", "subprocess.run", "jsonargparse", "my lib"])
def test_what_can_not_be_allowed(module):
    with pytest.raises(UserError, match="--allow_modules"):
        restrict_imports(True, module)


def build_network(width: int) -> nn.Module:
    """A function that says what it returns may stand in the place of a class."""
    return nn.Linear(width, width)


def test_functions_that_return_a_network_are_taken():
    own = calls(f"{__name__}.build_network", width=3)
    import_module("litlab.tasks.classifier")
    import_module("torchvision.models")
    model: dict[str, Any] = {"class_path": "litlab.tasks.Classifier", "init_args": {"network": own}}
    check_names({"model": model}, False, [])
    model["init_args"]["network"] = calls("torchvision.models.resnet18")
    check_names({"model": model}, True, [])
    model["init_args"]["optimizer"] = own
    with pytest.raises(UserError, match=r"model\.optimizer: .*build_network .* Optimizer"):
        check_names({"model": model}, False, [])

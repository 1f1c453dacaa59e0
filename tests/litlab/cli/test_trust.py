"""Foreign checkpoints, run folders and configs: whatever they name, nothing of it is called or
imported.
"""

import pkgutil
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from jsonargparse import Namespace
from lightning.pytorch.callbacks.finetuning import multiplicative

from litlab.artifact import is_exported
from litlab.checkpointing.callback import RunCheckpoint
from litlab.cli import trust
from litlab.cli.argv import read_command_line
from litlab.cli.trust import check_config, find_kind, list_modules, restrict_imports
from litlab.commands.serve.model import load_model
from litlab.errors import UserError
from tests.litlab.runs.conftest import error

MAY_NOT = "the config of a run or checkpoint may not name"


def calls(path: str, /, **init_args: Any) -> dict[str, Any]:
    return {"class_path": path, "init_args": init_args}


# Where it stands: the optimizer, a callback, the network, or a setting; what stands there; what the
# line says of it. LambdaCallback calls something later.
FOREIGN = yaml.safe_load(
    """
command:
- optimizer
- {class_path: os.system, init_args: {command: touch MARK}}
- MAY_NOT os.system here; see
a module of the folder: [optimizer, evil_module.Optimizer, add --allow_modules evil_module]
a function of ours:
- optimizer
- &write {class_path: litlab.util.files.write_text, init_args: {path: MARK, text: written}}
- "model.optimizer: MAY_NOT litlab.util.files.write_text"
callable of torch:
- callbacks
- {class_path: lightning.pytorch.callbacks.LambdaCallback, init_args: {setup: torch.save}}
- MAY_NOT torch.save
callable with arguments:
- callbacks
- {class_path: lightning.pytorch.callbacks.LambdaCallback, init_args: {setup: *write}}
- MAY_NOT
class that loads a library:
- callbacks
- class_path: lightning.pytorch.callbacks.LambdaCallback
  init_args: {setup: {class_path: litlab.artifact.Artifact, init_args: {folder: evil}}}
- "trainer.callbacks.setup: MAY_NOT litlab.artifact.Artifact"
text that torch.fx runs:
- network
- class_path: torch.fx.graph_module.reduce_graph_module  # whose annotation promises a module
  init_args:
    body: {_code: "forward=lambda self,x:x"}
    import_block: import pathlib; pathlib.Path('MARK').touch()
- "model.network: MAY_NOT torch.fx"
variable in a folder:
- default_root_dir
- ${A_SECRET}
- "trainer.default_root_dir: ${A_SECRET} names a var"
variable of a logger:
- logger
- {class_path: CSVLogger, init_args: {save_dir: ., name: x$A_SECRET}}
- "trainer.logger.name: x$A_SECRET names a"
""".replace("MAY_NOT", MAY_NOT)
)


@pytest.fixture(scope="module")
def trained(fitted) -> dict[str, Any]:
    """A checkpoint, in memory, with the config it holds."""
    return torch.load(next(fitted.rglob("last.ckpt")), weights_only=True)


@pytest.fixture
def evil(tmp_path, monkeypatch) -> Path:
    """A file that must not appear; modules of the working directory can be imported, as with
    ``python -m``.
    """
    (tmp_path / "evil_module.py").write_text(
        f"import pathlib, torch\npathlib.Path({str(tmp_path / 'MARK')!r}).touch()\n"
        "class Optimizer(torch.optim.SGD): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("A_SECRET", "hidden")
    # And what a test imports of it, the next one does not have
    monkeypatch.setitem(sys.modules, "evil_module", None)
    del sys.modules["evil_module"]
    return tmp_path / "MARK"


def poisoned(trained: dict[str, Any], name: str) -> dict[str, Any]:
    """The checkpoint with something foreign in its settings and in its config."""
    place, payload, _ = FOREIGN[name]
    config, settings = yaml.safe_load(trained["config"]), dict(trained["hyper_parameters"])
    if place == "optimizer":
        config["model"]["init_args"]["optimizer"] = settings["optimizer"] = payload
    elif place == "network":
        config["model"] = calls("litlab.tasks.Forecaster", network=payload)
    else:
        config["trainer"][place] = [payload] if place == "callbacks" else payload
    return {**trained, "config": yaml.safe_dump(config), "hyper_parameters": settings}


def run_folder(root: Path, checkpoint: dict[str, Any]) -> Path:
    folder = root / "lightning_logs/foreign/version_0"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.yaml").write_text(checkpoint["config"])
    (folder / "status.json").write_text("{}")
    torch.save(checkpoint, folder / "checkpoints/last.ckpt")
    return folder


def assert_refused(done, says: str, mark: Path) -> None:
    assert says in error(done)
    assert not mark.exists()
    assert not [*mark.parent.rglob("*hidden*")]


@pytest.mark.parametrize("name", FOREIGN)
def test_nothing_that_a_checkpoint_names_is_called(run, series, tmp_path, evil, trained, name):
    checkpoint = poisoned(trained, name)
    if [*FOREIGN].index(name) % 2:  # in turns: a file that lies in no run, and the folder of a run
        torch.save(checkpoint, tmp_path / "evil.ckpt")
        done = run("predict --run evil.ckpt --input", series)
    else:
        done = run("fit --resume", run_folder(tmp_path, checkpoint), "--trainer.max_epochs=2")
    assert_refused(done, FOREIGN[name][2], evil)


@pytest.mark.parametrize("command", [
    "test --run {run}", "validate --run {run}", "test --run evil.ckpt",
    "predict --run {run} " "--input {series}", "export --run {run} --format pt2",
    "fit --resume {run} --trainer.max_epochs=3", "fit --config " "{run}/config.yaml", "serve",
])  # fmt: skip
def test_no_command_runs_text(run, series, tmp_path, evil, trained, command):
    checkpoint = poisoned(trained, "text that torch.fx runs")
    torch.save(checkpoint, tmp_path / "evil.ckpt")
    folder = run_folder(tmp_path, checkpoint)
    if command == "serve":  # whose workers do this
        with pytest.raises(UserError, match=MAY_NOT):
            load_model(str(folder), [], workers=1)
    else:
        done = run(command.format(run=folder, series=series))
        assert_refused(done, f"model.network: {MAY_NOT}", evil)
    for reader in ("compare", "report", "reproduce"):
        run(reader, folder)
    assert not evil.exists()


def test_what_lies_in_the_folder_of_weights_is_not_unpickled(
    run, tmp_path, evil, trained, monkeypatch
):
    class Evil:
        def __reduce__(self):
            return Path.touch, (evil,)

    network = calls("torchvision.models.squeezenet1_1", weights="DEFAULT")
    monkeypatch.setitem(FOREIGN, "weights", ("network", network, ""))
    folder = run_folder(tmp_path, poisoned(trained, "weights"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    (tmp_path / "torch/hub/checkpoints").mkdir(parents=True)
    torch.save(Evil(), tmp_path / "torch/hub/checkpoints/squeezenet1_1-b8a52dc0.pth")
    done = run("fit --config", folder / "config.yaml", "--experiment=mine")
    assert_refused(done, "error: model: a file of weights holds other things", evil)


def test_beside_a_config_of_ones_own_only_the_weights_of_a_checkpoint_are_used(
    run, tmp_path, evil, trained
):
    torch.save(poisoned(trained, "a module of the folder"), tmp_path / "evil.ckpt")
    (tmp_path / "mine.yaml").write_text(trained["config"])
    done = run("test --config mine.yaml --ckpt_path evil.ckpt")
    assert (done.code, evil.exists()) == (0, False), done.err


def test_only_allow_modules_trusts_a_module(run, series, tmp_path, evil, trained):
    """Not a value that looks like one: a file to write, a class of another setting."""
    torch.save(poisoned(trained, "a module of the folder"), tmp_path / "mine.ckpt")
    for flag in ("--output=evil_module.csv", "--trainer.profiler=evil_module.Profiler"):
        done = run("predict --run mine.ckpt --input", series, flag)
        assert_refused(done, "add --allow_modules", evil)
    run("validate --run mine.ckpt --allow_modules=evil_module").check()
    assert evil.exists()


def test_a_run_is_not_taken_for_an_export(tmp_path, trained):
    folder = run_folder(tmp_path, trained)
    (folder / "manifest.json").write_text('{"format": "aoti"}')
    assert not is_exported(folder), "which would be loaded as native code"


def test_a_checkpoint_names_no_file_outside_of_its_folder(tmp_path):
    """Lightning removes best checkpoints that are replaced, wherever the state of its callback says
    they are.
    """
    (tmp_path / "victim.ckpt").touch()
    keep = RunCheckpoint(str(tmp_path))
    name = "a/../../victim.ckpt"
    paths = dict.fromkeys(("best_model_path", "kth_best_model_path", "last_model_path"), name)
    keep.load_state_dict({**keep.state_dict(), **paths, "best_k_models": {name: 0.0}})
    assert list(keep.best_k_models) == [keep.best_model_path] == [str(tmp_path / "victim.ckpt")]


def test_a_fit_of_ones_own_that_goes_on_may_name_what_ones_files_and_flags_do(tmp_path, trained):
    (tmp_path / "mine.yaml").write_text(
        "data: {class_path: mylib.data.Mine, init_args: {share: 0.5, path: os.path}}"
    )
    flags = [f"--config={tmp_path / 'mine.yaml'}", "--model=nets.Mine", "--allow_modules=other"]
    allowed = list_modules(read_command_line(["fit", *flags])).split(",")
    assert {"other", "mylib.data", "nets"} <= {*restrict_imports(True, ",".join(allowed))}
    assert not {"os", "torch", "litlab"} & {*allowed}
    of_run = ["fit", f"--config={run_folder(tmp_path, trained)}/config.yaml"]
    assert list_modules(read_command_line(of_run)) == ""


@pytest.mark.parametrize("name", ["os", "*"])
def test_modules_that_can_not_be_allowed(name):
    with pytest.raises(UserError, match=r"^--allow_modules: a config may not name"):
        restrict_imports(True, f"mylib,{name}")


# What may stand where: all that is callable in many modules is put at each place

# By kind: the modules in which something of it is defined, besides what is litlab's or the team's
FROM = {
    "accelerator": r"lightning\.pytorch\.accelerators",
    "function": r"(torch\.nn\.functional|torch\._C\._nn|torch)$",
    "lightning_callback": r"lightning\.pytorch\.callbacks",
    "logger": r"lightning\.pytorch\.loggers",
    "metric": r"torchmetrics\.(?!multimodal|audio|video|shape)",
    "network": r"torch\.nn\.modules|torchvision\.models|timm\.models|litlab\.nn\.adapt$",
    "optimizer": r"torch\.optim|torchao\.optim",
    "plugin": r"lightning\.(pytorch|fabric)\.plugins",
    "profiler": r"lightning\.pytorch\.profilers",
    "schedule": r"torch\.optim|lightning\.pytorch\.cli$",
    "strategy": r"lightning\.pytorch\.strategies\.(ddp|model_parallel|single_device)$",
    "transform": r"torchvision\.transforms\.v2",
}
# Of each kind that takes something: where it stands, and one of it
PARENTS = yaml.safe_load("""
model: [model, litlab.tasks.Classifier]
data: [data, litlab.data.ImageData]
callback: [trainer.callbacks, litlab.callbacks.EMA]
lightning_callback: [trainer.callbacks, lightning.pytorch.callbacks.LambdaCallback]
logger: [trainer.logger, lightning.pytorch.loggers.CSVLogger]
strategy: [trainer.strategy, lightning.pytorch.strategies.DDPStrategy]
network: [model.network, torch.nn.Sequential]
optimizer: [model.optimizer, torch.optim.SGD]
schedule: [model.schedule, torch.optim.lr_scheduler.LambdaLR]
metric: [model.metrics, torchmetrics.Accuracy]
transform: [data.transform, torchvision.transforms.v2.Lambda]
""")
SOME = (
    "builtins", "subprocess", "torch.fx.graph_module", "torch.hub", "torch.nn.functional",
    "torch.nn.modules.loss", "torch.optim", "lightning.pytorch.callbacks",
    "lightning.pytorch.strategies", "litlab.artifact", "litlab.runs.folder", "litlab.nn",
    "litlab.tasks", "auks.images",
)  # fmt: skip
ALL = ("torch", "torchvision", "lightning", "torchmetrics", "timm", "torchao", "litlab", "auks")


def walk(name: str) -> Iterator[str]:
    """The public modules of a package, imported; those that can't be are left out."""
    with suppress(BaseException):
        module = import_module(name)
        yield name
        for info in pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}."):
            if "._" not in info.name:
                yield from walk(info.name)


def put(key: str, value: Any) -> Namespace:
    """A config with something at a place."""
    section, _, name = key.partition(".")
    if section == "trainer":
        return Namespace(trainer=Namespace({name: [value]}))
    return Namespace({section: calls(PARENTS[section][1], **{name: value}) if name else value})


def passes(config: Namespace) -> bool:
    with suppress(UserError):
        check_config(config, [])
        return True
    return False


def belongs(target: Any, kinds: str) -> bool:
    """Whether something is of one of some kinds."""
    module = getattr(target, "__module__", None) or ""
    own = isinstance(target, type) and module.startswith(("litlab", "auks"))
    return any(
        issubclass(target, trust.KINDS[kind].base) if own else re.match(FROM.get(kind, "-"), module)
        for kind in kinds.split()
    )


# Where it stands; what stands there; what is refused of it
BLOCKS = yaml.safe_load("""
- [model.network, {class_path: torchvision.models.resnet18}, ""]
- - model.network
  - {class_path: timm.create_model, init_args: {model_name: resnet10t, pretrained: true}}
  - ""
- - model.network
  - {class_path: timm.create_model, init_args: {model_name: "hf-hub:a/resnet10t"}}
  - model.network.model_name
- - model.network
  - {class_path: timm.create_model, init_args: {model_name: resnet10t, checkpoint_path: x}}
  - model.network.checkpoint_path
- - model.network
  - {class_path: timm.create_model, dict_kwargs: {pretrained_cfg: {file: x}}}
  - model.network.pretrained
- [model.metrics, {a: {class_path: torchmetrics.text.BERTScore}}, model.metrics.a]
- - trainer.callbacks
  - class_path: lightning.pytorch.callbacks.LambdaCallback
    init_args: {setup: {class_path: torchvision.models.resnet18}}
  - trainer.callbacks.setup
- - trainer.logger
  - {class_path: lightning.pytorch.loggers.WandbLogger, dict_kwargs: {entity: me}}
  - ""
- - trainer.logger
  - class_path: lightning.pytorch.loggers.WandbLogger
    init_args: {settings: {base_url: x}}
  - trainer.logger.set
- [trainer.strategy, ddp_find_unused_parameters_true, ""]
- [trainer.strategy, fsdp, trainer.strategy]
- [trainer.profiler, {class_path: pathlib.Path}, trainer.profiler]
""")


@pytest.mark.parametrize(("key", "block", "refused"), BLOCKS)
def test_arguments_and_defaults(key, block, refused):
    for module in ("timm", "litlab.parallel", "torchmetrics.text", "auks.images"):
        pytest.importorskip(module)
    config = put(key, block)
    if key == "trainer.strategy":
        config.trainer.strategy = block
    if not refused:
        check_config(config, [])
        return
    with pytest.raises(UserError, match=f"^{refused}.*: {MAY_NOT}"):
        check_config(config, [])
    check_config(config, ["timm", "auks", "torchmetrics", "lightning", "torchvision", "pathlib"])


def test_a_function_that_is_a_default_of_its_class_may_stand_there():
    name = "lightning.pytorch.callbacks.BackboneFinetuning"
    check_config(put("trainer.callbacks", calls(name, lambda_func=multiplicative)), [])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "names", [SOME, pytest.param(ALL, marks=pytest.mark.matrix)], ids=["some", "all"]
)
def test_only_what_is_listed_passes_and_only_where_it_belongs(names, monkeypatch):
    modules = names if names is SOME else [module for name in names for module in walk(name)]
    found = {
        id(value): (f"{module}.{name}", value)
        for module in modules for name, value in vars(import_module(module)).items()
        if not name.startswith("_") and callable(value)
    }  # fmt: skip
    kind_of = {number: find_kind(target) for number, (_, target) in found.items()}
    monkeypatch.setattr(
        trust,
        "find_kind",
        lambda target: kind_of[id(target)] if id(target) in kind_of else find_kind(target),
    )

    places = trust.KINDS_BY_KEY | {"experiment": "", "trainer.precision": ""}
    for path, target in found.values():
        part = ("init_args", "dict_kwargs")[len(path) % 2]
        for value in (target, calls(path)):
            for key, kinds in places.items():
                assert not passes(put(key, value)) or belongs(target, kinds), (key, path)
            for parent, (key, name) in PARENTS.items():
                block = put(key, {"class_path": name, part: {"x": [value], "y": {"z": value}}})
                kinds = trust.KINDS[parent].arguments
                assert not passes(block) or belongs(target, kinds), (name, path)
    passed = Counter(filter(None, kind_of.values()))
    print(f"{len(found):,} tried, {passed.total():,} pass: {passed}")
    assert names is SOME or (passed.keys() == trust.KINDS.keys() and len(found) > 10_000)

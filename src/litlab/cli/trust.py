"""What the config of a run or checkpoint may name: a written list of what may stand where.

A YAML file that you write is code: it may name whatever you have. The config of a run or checkpoint
may come from somebody else, and building what it names calls it. So each class must be of a kind on
the list below, and stand where that kind belongs; nothing is deduced from annotations.
``--allow_modules`` adds what the user trusts. See docs/security.md.
"""

import inspect
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import chain
from types import ModuleType
from typing import Any
from unittest import mock

from jsonargparse import Namespace, set_parsing_settings
from lightning.fabric.plugins import CheckpointIO, ClusterEnvironment
from lightning.pytorch import Callback, LightningDataModule, LightningModule
from lightning.pytorch.accelerators import Accelerator
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins import LayerSync, Precision
from lightning.pytorch.profilers import Profiler
from lightning.pytorch.strategies import Strategy, StrategyRegistry
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torchmetrics import Metric

from litlab.cli.argv import CommandLine
from litlab.cli.classes import ROOMS, find_imported
from litlab.cli.sections import SECTIONS
from litlab.errors import UserError
from litlab.util.team import team_folders


@dataclass
class Kind:
    """A kind of class.

    Args:
        base: Its subclasses in litlab and the team's package are of this kind.
        arguments: The kinds that may stand in its arguments.
        libraries: What is of this kind in libraries: by module, the names; * for all subclasses.
    """

    base: Any
    arguments: str
    libraries: dict[str, str] = field(default_factory=dict)


# A class is of the first kind that fits.
KINDS = {
    "model": Kind(LightningModule, "network optimizer schedule metric transform function"),
    "data": Kind(LightningDataModule, "network transform function"),
    "callback": Kind(Callback, "network metric function"),
    # Apart from ours, as Lightning's take neither networks nor metrics
    "lightning_callback": Kind(Callback, "function", {
        "lightning.pytorch.callbacks":
            "BackboneFinetuning BatchSizeFinder DeviceStatsMonitor EarlyStopping "
            "EMAWeightAveraging GradientAccumulationScheduler LambdaCallback LearningRateFinder "
            "LearningRateMonitor ModelCheckpoint ModelPruning ModelSummary OnExceptionCheckpoint "
            "RichModelSummary RichProgressBar SpikeDetection StochasticWeightAveraging "
            "ThroughputMonitor Timer TQDMProgressBar WeightAveraging",
    }),
    "optimizer": Kind(Optimizer, "optimizer", {"torch.optim": "*", "torchao.optim": "*"}),
    "schedule": Kind(LRScheduler, "schedule function", {
        "torch.optim.lr_scheduler": "*",
        "torch.optim.swa_utils": "SWALR",
        "lightning.pytorch.cli": "ReduceLROnPlateau",
    }),
    "metric": Kind(Metric, "metric", {  # none that downloads a network, as FID and LPIPS do
        "torchmetrics.aggregation": "*",
        "torchmetrics.classification": "*",
        "torchmetrics.clustering": "*",
        "torchmetrics.detection": "IntersectionOverUnion MeanAveragePrecision PanopticQuality",
        "torchmetrics.image": "PeakSignalNoiseRatio StructuralSimilarityIndexMeasure",
        "torchmetrics.nominal": "*",
        "torchmetrics.regression": "*",
        "torchmetrics.retrieval": "*",
        "torchmetrics.segmentation": "*",
        "torchmetrics.text": "BLEUScore CharErrorRate EditDistance Perplexity WordErrorRate",
        "torchmetrics.wrappers": "*",
    }),
    "logger": Kind(Logger, "", {
        "lightning.pytorch.loggers":
            "CometLogger CSVLogger LitLogger MLFlowLogger TensorBoardLogger WandbLogger",
    }),
    "profiler": Kind(Profiler, "", {
        "lightning.pytorch.profilers":
            "AdvancedProfiler PassThroughProfiler PyTorchProfiler SimpleProfiler",
    }),
    # FSDP's first version and DeepSpeed unpickle checkpoints.
    "strategy": Kind(Strategy, "accelerator plugin", {
        "lightning.pytorch.strategies": "DDPStrategy ModelParallelStrategy SingleDeviceStrategy",
    }),
    "accelerator": Kind(Accelerator, "", {
        "lightning.pytorch.accelerators": "CPUAccelerator CUDAAccelerator MPSAccelerator",
    }),
    "plugin": Kind((Precision, ClusterEnvironment, CheckpointIO, LayerSync), "plugin", {
        "lightning.pytorch.plugins":
            "AsyncCheckpointIO BitsandbytesPrecision DoublePrecision HalfPrecision MixedPrecision "
            "Precision TorchCheckpointIO TorchSyncBatchNorm TransformerEnginePrecision",
        "lightning.pytorch.plugins.environments":
            "KubeflowEnvironment LightningEnvironment LSFEnvironment MPIEnvironment "
            "SLURMEnvironment TorchElasticEnvironment",
    }),
    "network": Kind(nn.Module, "network function", {  # and functions: see `list_factories`
        "torch.nn.modules": "*",
        "torchvision.models": "*",
    }),
    "transform": Kind(nn.Module, "transform function", {"torchvision.transforms.v2": "*"}),
    "function": Kind((), ""),  # of torch.nn.functional
}  # fmt: skip
# By key of the config: the kinds that may stand there. Nowhere else may it name anything.
KINDS_BY_KEY = {
    "model": "model",
    "data": "data",
    "trainer.accelerator": "accelerator",
    "trainer.callbacks": "callback lightning_callback",
    "trainer.logger": "logger",
    "trainer.plugins": "plugin",
    "trainer.profiler": "profiler",
    "trainer.strategy": "strategy",
    **dict.fromkeys(SECTIONS, "callback"),
}
# Arguments of libraries by which they read other files, or tell other servers the key of a service.
NEVER_SET = ("pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir", "settings")

# What is ours, besides the team's: `RunCheckpoint` is the one class outside of these folders.
LITLAB = (*(f"litlab.{room}" for room in ROOMS), "litlab.checkpointing.callback")
# Where the parser looks for what is listed, and where that is defined.
IMPORTS = (
    *chain.from_iterable(kind.libraries for kind in KINDS.values()),
    "torch.nn", "torch._C._nn", "torchmetrics", "timm", "lightning.fabric.plugins",
)  # fmt: skip
# What the functions of the first of these name as their module: gelu the second, conv1d the third.
FUNCTIONS = ("torch.nn.functional", "torch._C._nn", "torch")
# Modules of Python itself start programs and write files: nobody can trust one as a whole.
NOT_ALLOWED = {*sys.stdlib_module_names, "jsonargparse"}


def restrict_imports(foreign: bool, allowed: str | None) -> list[str]:
    """Tell the parser what it may import, until the process ends.

    Args:
        foreign: Whether the config may be somebody else's.
        allowed: Modules of ``--allow_modules``, separated by commas.

    Returns:
        These modules.

    Raises:
        UserError: If one of them is part of Python itself, or no name of a module.
    """
    # What the user trusts, a package or a module of it
    modules = [name.strip() for name in (allowed or "").split(",") if name.strip()]
    for name in modules:
        if not name.replace(".", "").isidentifier() or name.partition(".")[0] in NOT_ALLOWED:
            line = f"a config may not name '{name}'; give a package such as mylib"
            raise UserError(f"--allow_modules: {line}")
    # Both hold until the process ends. What stands where any value may is not built: a dictionary
    # with a class_path in it stays one.
    set_parsing_settings(instantiate_subclass_spec_in_any=False)
    # To import a module is to run it, so the parser may not even look into others
    if foreign:
        allowlist = [*team_folders(), *LITLAB, *IMPORTS, *modules]
        set_parsing_settings(import_path_denylist=["*"], import_path_allowlist=allowlist)
    return modules


def list_modules(line: CommandLine) -> str:
    """Return what the user's own flags and configs name or allow, as ``--allow_modules`` takes it.

    A fit of theirs that goes on may name the same.
    """
    # All dotted names in them, each without its last part: more than classes, which does no harm
    text = "" if line.is_foreign else "\n".join(line.flags.read_texts())
    named = [path.split(".") for path in re.findall(r"\w+(?:\.\w+)*(?=\.\w)", text)]
    valid = [path for path in named if all(map(str.isidentifier, path))]
    modules = {".".join(path) for path in valid if path[0] not in NOT_ALLOWED}
    return ",".join([line.flags.find("--allow_modules") or "", *sorted(modules)])


def load_weights_only() -> AbstractContextManager[Any]:
    """Let torch.load read weights alone: torchvision unpickles what is in torch.hub's folder."""
    return mock.patch.dict(os.environ, TORCH_FORCE_WEIGHTS_ONLY_LOAD="1")


def check_config(config: Namespace, allowed: Sequence[str]) -> None:
    """Check the config of a run or checkpoint. Nothing that it names was called yet.

    Args:
        config: The parsed config.
        allowed: Modules of ``--allow_modules``.

    Raises:
        UserError: For the first thing that may not stand where it does, and for a text into which
            Lightning would put a variable: a secret would become the name of a logger's folder.
    """
    # Sections that name nothing, such as `experiment`, are searched for variables
    for section, settings in vars(config).items():
        _check(settings, section, None, "", allowed)


def explain_denied(path: str) -> str:
    """Return why the config of a run or checkpoint may not name something."""
    # No advice where the flag would be refused, too
    top = path.partition(".")[0]
    advice = "" if top in NOT_ALLOWED else f"if you trust it, add --allow_modules {top}; "
    refused = f"the config of a run or checkpoint may not name {path} here"
    return f"{refused}; {advice}see docs/security.md"


def _check(value: Any, key: str, parent: Any, kinds: str, allowed: Sequence[str]) -> None:
    """Check a value and all that is in it.

    Args:
        value: A setting, or several of them.
        key: Where it stands, dotted.
        parent: The class or function whose argument it is; None in a section of the config.
        kinds: What may stand there.
        allowed: Modules of ``--allow_modules``.
    """
    # Whose value it is says what may stand there. Our own classes and allowed ones may be given any
    # text; some arguments of libraries read other files or tell secrets.
    if isinstance(value, Namespace):
        value = vars(value)
    if parent is None:
        kinds = KINDS_BY_KEY.get(key, "")
    elif value is not None and not _is_in(parent, (*LITLAB, *team_folders(), *allowed)):
        _check_argument(value, key, parent)

    # Lightning knows strategies by short names.
    if key == "trainer.strategy" and isinstance(value, str) and value in StrategyRegistry:
        strategy = StrategyRegistry[value]["strategy"]
        value = strategy if isinstance(strategy, type) else value  # litlab's are made by functions

    # A text, a class or function, a class with its arguments, several of all that
    if isinstance(value, str | os.PathLike):
        text = os.fspath(value)
        if os.path.expandvars(text) != text:
            raise UserError(
                f"{key}: {text} names a variable of the environment, and those are for configs of "
                "your own; write its value"
            )
    # The parser has turned some names into what they lead to: functions, and defaults in code
    elif callable(value) or isinstance(value, ModuleType):
        if not _is_default(value, key, parent):
            _check_name(value, _find_path(value), key, kinds, allowed)
    elif isinstance(value, Mapping):
        if "class_path" in value:
            path = str(value["class_path"])
            parent = find_imported(path)
            kinds = _check_name(parent, path, key, kinds, allowed)
        for name, item in value.items():
            inner = key if name in ("init_args", "dict_kwargs") else f"{key}.{name}"
            _check(item, inner, parent, kinds, allowed)
    elif isinstance(value, Collection):
        for item in value:
            _check(item, key, parent, kinds, allowed)


def _check_name(target: Any, path: str, key: str, kinds: str, allowed: Sequence[str]) -> str:
    """Check what is named, and return the kinds that may stand in its arguments."""
    # What the user allows may stand everywhere. If it is on no list, neither are its arguments
    # restricted to a few kinds
    kind = find_kind(target)
    if kind not in kinds.split() and not _is_in(target, allowed):
        raise UserError(f"{key}: {explain_denied(path)}")
    return KINDS[kind].arguments if kind else " ".join(KINDS)


def _check_argument(value: Any, key: str, parent: Any) -> None:
    """Check an argument of what a library has."""
    # timm's create_model also takes the address of a hub or of a folder in place of a name
    name = key.rpartition(".")[2]
    is_timm = name == "model_name" and parent.__name__ == "create_model"
    if name in NEVER_SET or (is_timm and not sys.modules["timm"].is_model(value)):
        raise UserError(f"{key}: {explain_denied(f'{_find_path(parent)}({name}={value!r})')}")


def find_kind(target: Any) -> str:
    """Return of which kind a class or function is; empty if it is on no list."""
    # Classes by what they inherit from and where they are; functions one by one
    if isinstance(target, type):
        is_ours = _is_in(target, (*LITLAB, *team_folders()))
        for name, kind in KINDS.items():
            if issubclass(target, kind.base) and (is_ours or _is_listed(target, kind.libraries)):
                return name
    elif inspect.isroutine(target):
        if any(target is factory for factory in list_factories(target.__name__)):
            return "network"
        if _find_module(target) in FUNCTIONS and _is_listed(target, {FUNCTIONS[0]: "*"}):
            return "function"
    return ""


def list_factories(name: str) -> Iterator[Any]:
    """Yield the functions that return networks: timm's of a name, and all others."""
    from litlab.nn.adapt import pretrained

    yield pretrained
    vision, timm = map(sys.modules.get, ("torchvision.models", "timm"))
    if vision is not None:
        yield from map(vision.get_model_builder, vision.list_models())
    if timm is not None:
        yield timm.create_model
        if timm.is_model(name):  # it has more than a thousand: only the one that is asked for
            yield timm.model_entrypoint(name)


def _is_listed(target: Any, libraries: Mapping[str, str]) -> bool:
    # By identity: what has the name of something on the list need not be it
    name = target.__name__
    return any(
        getattr(sys.modules.get(module), name, None) is target
        and (name in names.split() or (names == "*" and not name.startswith("_")))
        for module, names in libraries.items()
    )


def _is_default(value: Any, key: str, parent: Any) -> bool:
    """Return whether a value is what the code itself says where the setting is left out."""
    # Of the class or any that it inherits from, which may take it in **settings
    name = key.rpartition(".")[2]
    makers = [vars(base).get("__init__") for base in getattr(parent, "__mro__", ())]
    settings = [inspect.signature(maker).parameters for maker in filter(inspect.isfunction, makers)]
    return any(name in parameters and parameters[name].default is value for parameters in settings)


def _is_in(target: Any, modules: Iterable[str]) -> bool:
    # With the dots, `lib` allows lib.nets and not library
    return f"{_find_module(target)}.".startswith(tuple(f"{module}." for module in modules))


def _find_module(target: Any) -> str:
    if isinstance(target, ModuleType):
        return target.__name__
    return getattr(target, "__module__", None) or type(target).__module__


def _find_path(target: Any) -> str:
    return f"{_find_module(target)}.{getattr(target, '__qualname__', type(target).__qualname__)}"

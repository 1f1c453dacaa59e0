"""Which modules ``Compile`` compiles, and how a module is compiled in place."""

from collections.abc import Iterable
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import nn
from torchmetrics import Metric, MetricCollection

from litlab.callbacks.chosen_modules import called_modules, matching_modules
from litlab.errors import UserError


def chosen_modules(model: LightningModule, children: list[str] | None) -> dict[str, nn.Module]:
    """Find the modules to compile.

    Args:
        model: The LightningModule that they are in.
        children: Names or patterns, as ``Compile`` takes them.

    Returns:
        The modules by name. None of them is inside another: what is compiled includes all that is in it.

    Raises:
        UserError: If a name or pattern fits no module, or there is nothing to compile.
    """
    modules = called_modules(
        _default(model) if children is None else matching_modules(model, children, "compile.children")
    )
    if not modules:
        raise UserError(
            f"compile.children: {type(model).__name__} has no child module with parameters to compile; "
            "name one, or set compile.mode: null"
        )
    return modules


def compile_in_place(module: nn.Module, **options: Any) -> None:
    """Compile a module so that its parameters keep their names.

    Args:
        module: The module.
        options: Those of ``torch.compile``.
    """
    if torch.__version__ >= "2.15" or not module.forward.__module__.startswith("torch."):
        module.compile(**options)
        return

    # Before 2.15, nn.Module.compile silently does nothing for PyTorch's own modules, such as nn.Sequential: the
    # compiler skips PyTorch's files. A frame of this file is compiled instead, through the private attributes that
    # nn.Module.compile itself uses.
    def call(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    original = module._call_impl
    module._compiled_call_impl = torch.compile(call, **options)


def most_unlike(modules: Iterable[nn.Module]) -> int:
    """Return how many unlike modules share one function, at most; PyTorch limits how often a function is compiled.

    Modules of one class with parameters of the same shapes are alike: what is compiled for one serves the others.
    PyTorch's own classes, such as ``nn.Sequential``, are all called through one function.
    """
    kinds: dict[str, set[tuple[object, ...]]] = {}
    for module in modules:
        of_torch = module.forward.__module__.startswith("torch.")
        function = "torch" if of_torch else f"{module.forward.__module__}.{module.forward.__qualname__}"
        shapes = (type(module), *(tuple(parameter.shape) for parameter in module.parameters()))
        kinds.setdefault(function, set()).add(shapes)
    return max(map(len, kinds.values()), default=1)


def check_recurrent(modules: dict[str, nn.Module], fullgraph: bool) -> None:
    """Say which parts the compiler leaves as they are: it takes no ``nn.LSTM``, ``nn.GRU`` or ``nn.RNN`` into a graph.

    They run their own kernels (cuDNN, oneDNN), and what is around them is compiled; torch 2.10 also leaves out the rest
    of the function that calls one.

    Raises:
        UserError: If there is one and the whole is to be a single graph.
    """
    found = {
        f"{name}.{inner}".rstrip("."): type(part).__name__
        for name, module in modules.items()
        for inner, part in module.named_modules()
        if isinstance(part, nn.RNNBase)
    }
    if not found:
        return
    what = ", ".join(f"{name} (nn.{kind})" for name, kind in found.items())
    if fullgraph:
        raise UserError(
            f"compile.fullgraph: true can't be had with {what} of the model, which torch.compile never takes into a "
            "graph; set compile.fullgraph: false, or name other parts in compile.children"
        )
    rank_zero_info(f"compile: {what} is not compiled, as it has kernels of its own; the code around it is")


def check_backend(backend: str, device: torch.device) -> None:
    """Fail before training, in one line, where the backend is unknown or has no compiler to work with.

    What inductor needs (a C++ compiler, Python's headers, triton, a C compiler for triton) depends on the device, the
    platform and the version, so it is tried on ``x + 1``: a second or two the first time, then cached on disk.
    """
    if backend not in torch.compiler.list_backends(exclude_tags=()):
        useful = sorted({*torch.compiler.list_backends(), "eager", "aot_eager"})
        raise UserError(f"compile.backend: {backend!r} is unknown; choose one of {', '.join(useful)}")
    if backend in ("eager", "aot_eager"):
        return
    try:
        torch.compile(trial, backend=backend)(torch.ones(8, device=device))
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = next((line for line in lines if "error: " in line), lines[0])  # of a compiler, else of torch
        if backend != "inductor":
            raise UserError(f"compile.backend: {backend} can't be used here ({' '.join(lines[:2])})") from error
        remedy = "triton and a C compiler (gcc)" if device.type == "cuda" else "a C++ compiler (g++ or clang++)"
        raise UserError(
            f"compile.mode: no working compiler for {device.type} on this machine ({reason}); "
            f"install {remedy} and Python's headers (python3-dev), or run with --compile.mode null"
        ) from error


def optimizer_advice(error: BaseException, trainer: Trainer | None) -> str | None:
    """Return one line on an exception of an optimizer that compiles its step, where there is no compiler.

    Args:
        error: What ended the run.
        trainer: Its Trainer, if there is one.

    Returns:
        What to install; None for any other exception.
    """
    if trainer is None or "InvalidCxxCompiler" not in str(error):
        return None
    compiled = [type(optimizer) for optimizer in trainer.optimizers if "torchao" in type(optimizer).__module__]
    if not compiled:
        return None
    return (
        f"model.optimizer: {compiled[0].__name__} compiles its step, and this machine has no working compiler; install "
        "a C++ compiler (g++ or clang++) and Python's headers (python3-dev), or choose another optimizer"
    )


def trial(x: torch.Tensor) -> torch.Tensor:
    """Return x + 1: the compiler is tried on it."""
    return x + 1


def _default(model: LightningModule) -> dict[str, nn.Module]:
    if isinstance(network := getattr(model, "network", None), nn.Module):
        return {"network": network}
    return {
        name: child
        for name, child in model.named_children()
        if not isinstance(child, (Metric, MetricCollection)) and next(child.parameters(), None) is not None
    }

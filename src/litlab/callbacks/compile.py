"""torch.compile for chosen parts of the model."""

from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import nn
from torchmetrics import Metric, MetricCollection

from litlab.callbacks.graph_breaks import GraphBreakLog, log_graph_breaks
from litlab.callbacks.reporting.folders import run_folder
from litlab.errors import UserError
from litlab.util.nearest import nearest

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
WITH_CUDA_GRAPHS = ("reduce-overhead", "max-autotune")


class Compile(Callback):
    """Compile parts of the model with ``torch.compile``, in place, before the run starts.

    In place means that the parameters keep their names: checkpoints are the same with and without compilation and load
    either way. The LightningModule itself is never compiled, because each ``self.log`` would break its graph.

    Args:
        mode: ``null`` to leave the model as it is; ``default`` for the compiler's balance of compile time and speed;
            ``reduce-overhead`` for small batches on a GPU (CUDA graphs; needs input shapes that stay the same);
            ``max-autotune`` to try out several kernels for each operation (long compile time, CUDA graphs);
            ``max-autotune-no-cudagraphs`` for the same without CUDA graphs.
        children: Names of the modules to compile, dotted from the LightningModule, such as ``[network.blocks]``; a list
            of modules is compiled one by one. ``null`` compiles ``network``, or where there is none every direct child
            that has parameters.
        dynamic: ``true`` compiles for any input size at once, ``false`` again for each new size, ``null`` once more,
            for any size, when a size changes.
        fullgraph: Whether to fail where the compiler cannot turn a module into one single graph.
        backend: The compiler's backend; ``inductor`` unless you are looking for a bug (``eager``, ``aot_eager``).
        graph_breaks: Whether to log where and why the compiler breaks the graph or compiles again, to stderr and to
            ``graph_breaks.txt`` in the run folder, as ``TORCH_LOGS=graph_breaks,recompiles`` does.

    Raises:
        UserError: For an unknown mode, backend or child, and where this machine has no working compiler.
    """

    def __init__(
        self,
        mode: str | None = None,
        children: list[str] | None = None,
        dynamic: bool | None = None,
        fullgraph: bool = False,
        backend: str = "inductor",
        graph_breaks: bool = False,
    ) -> None:
        if mode is not None and mode not in MODES:
            raise UserError(f"compile.mode: {mode!r} is unknown; choose null, {', '.join(MODES)}")
        if mode not in (None, "default") and backend != "inductor":
            raise UserError(f"compile.mode: {mode} needs compile.backend: inductor, not {backend}; set mode: default")
        self.mode = mode
        self.children = children
        self.dynamic = dynamic
        self.fullgraph = fullgraph
        self.backend = backend
        self.graph_breaks = graph_breaks
        self._compiled: WeakSet[nn.Module] = WeakSet()  # setup runs again for the test after fit
        self._log: GraphBreakLog | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Compile what was chosen, once, whatever the stage."""
        if self.mode is None:
            return
        modules = [module for module in self._chosen(pl_module) if module not in self._compiled]
        if modules:
            _check_backend(self.backend, trainer.strategy.root_device)
        for module in modules:
            _compile(module, mode=self.mode, dynamic=self.dynamic, fullgraph=self.fullgraph, backend=self.backend)
            self._compiled.add(module)
        if self.graph_breaks:
            folder = run_folder(trainer)
            if trainer.is_global_zero:
                log_graph_breaks(on=True)
                self._log = GraphBreakLog(folder / "graph_breaks.txt") if folder is not None else None

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Say how often the graph was broken."""
        if self.graph_breaks and self.mode is not None:
            log_graph_breaks(on=False)
        if self._log is not None:
            rank_zero_info(f"{self._log.finish()}: {self._log.baseFilename}")
            self._log = None

    def on_train_batch_start(self, *args: Any, **kwargs: Any) -> None:
        """Tell CUDA graphs that a step begins."""
        # A CUDA graph's outputs live until the next step. By default PyTorch takes each call outside training for a
        # step of its own, and the second of several compiled children would find the first one's output overwritten.
        if self.mode in WITH_CUDA_GRAPHS:
            torch.compiler.cudagraph_mark_step_begin()

    on_validation_batch_start = on_test_batch_start = on_predict_batch_start = on_train_batch_start

    def _chosen(self, pl_module: LightningModule) -> list[nn.Module]:
        if self.children is not None:
            named = dict(pl_module.named_modules())
            named.pop("")  # the LightningModule itself
            for name in self.children:
                if name not in named:
                    hint = nearest(name, named, f"; choose from {', '.join(dict(pl_module.named_children()))}")
                    raise UserError(f"compile.children: {type(pl_module).__name__} has no module {name!r}{hint}")
            roots = [named[name] for name in self.children]
        elif isinstance(network := getattr(pl_module, "network", None), nn.Module):
            roots = [network]
        else:
            roots = [
                child
                for child in pl_module.children()
                if not isinstance(child, (Metric, MetricCollection)) and next(child.parameters(), None) is not None
            ]
        modules = [module for root in roots for module in _callable_parts(root)]
        if not modules:
            raise UserError(
                f"compile.children: {type(pl_module).__name__} has no child module with parameters to compile; "
                "name one, or set compile.mode: null"
            )
        return modules


def _callable_parts(module: nn.Module) -> Iterator[nn.Module]:
    # A container is never called, so that compiling it would silently do nothing.
    if isinstance(module, (nn.ModuleList, nn.ModuleDict)):
        for child in module.children():
            yield from _callable_parts(child)
    else:
        yield module


def _compile(module: nn.Module, **options: Any) -> None:
    """Compile a module in place."""
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


def _check_backend(backend: str, device: torch.device) -> None:
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
        torch.compile(lambda x: x + 1, backend=backend)(torch.ones(8, device=device))
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

"""torch.compile for chosen parts of the model, in place. Lightning has no callback for it."""

from contextlib import ExitStack
from typing import Any, Literal

import torch
import torch._functorch.config
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed, InvalidBackend, TorchDynamoException
from torch._dynamo.utils import calculate_time_spent, counters, get_compilation_metrics

from litlab.errors import UserError, first_line
from litlab.types import ClosedUnitInterval
from litlab.util.text import plural

CONFIG: Any = torch.compiler.config
Mode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]


class Compile(Callback):
    """Compile parts of the model with ``torch.compile``, in place, before the run starts.

    In place means that the parameters keep their names: checkpoints are the same with and without
    compilation and load either way. The LightningModule itself is never compiled, because each
    ``self.log`` would break its graph.

    Compiled code is kept in torch's cache (``TORCHINDUCTOR_CACHE_DIR``). ``seconds`` is how long
    compiling has taken. After the run, torch's limits and logs for the whole process are restored.

    Args:
        mode: ``null`` to leave the model as it is; ``default`` for the compiler's balance of
            compile time and speed; ``reduce-overhead`` for small batches on a GPU (CUDA graphs;
            needs input shapes that stay the same); ``max-autotune`` to try out several kernels for
            each operation (long compile time, CUDA graphs); ``max-autotune-no-cudagraphs`` for the
            same without CUDA graphs.
        children: Patterns of the names of modules to compile, dotted from the LightningModule, such
            as ``[network.encoder]``; see `litlab.nn.selection`. ``null`` compiles every child that
            has parameters.
        blocks: Whether to compile each block of the network separately, instead of `children`.
            Equal blocks are compiled only once.
        dynamic: ``true`` compiles for any input size at once, ``false`` again for each new size,
            ``null`` once more, for any size, when a size changes. Layers that a strategy divides
            are always compiled for known sizes.
        fullgraph: Whether to fail if the compiler cannot turn a module into a single graph.
        backend: The compiler's backend; ``inductor`` unless you are looking for a bug (``eager``,
            ``aot_eager``).
        graph_breaks: Whether to log where and why the compiler breaks the graph or compiles again,
            to stderr, as ``TORCH_LOGS=graph_breaks,recompiles`` does, and how many graphs, guards
            and breaks there are.
        memory_budget: How much memory activations may take, from 0 to 1: 1 keeps everything that
            the backward pass can use; below that, the compiler computes some again (torch's
            ``activation_memory_budget``). ``null`` leaves it to the compiler, which computes again
            only what costs next to nothing.

    Raises:
        UserError: If there is nothing to compile, or CUDA graphs are requested without a GPU.
    """

    def __init__(
        self,
        mode: Mode | None = None,
        children: list[str] | None = None,
        blocks: bool = False,
        dynamic: bool | None = None,
        fullgraph: bool = False,
        backend: str = "inductor",
        graph_breaks: bool = False,
        memory_budget: ClosedUnitInterval | None = None,
    ) -> None:
        self.mode = mode
        self.children = children
        self.blocks = blocks
        self.dynamic = dynamic
        self.fullgraph = fullgraph
        self.backend = backend
        self.graph_breaks = graph_breaks
        self.memory_budget = memory_budget
        self._compiled: list[nn.Module] = []
        self._changes = ExitStack()  # of the process, undone when the run ends
        self._seconds_before = calculate_time_spent()["total_wall_time"]
        self._graphs_before = len(get_compilation_metrics())
        self._is_told = False

    @property
    def seconds(self) -> float:
        """Seconds that this process has spent compiling since this was made."""
        return calculate_time_spent()["total_wall_time"] - self._seconds_before

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self.mode is None:
            return
        if self.mode == "reduce-overhead" and trainer.strategy.root_device.type != "cuda":
            raise UserError(
                "compile.mode: reduce-overhead needs a CUDA GPU; set compile.mode: default"
            )
        modules = self._select_modules(pl_module)

        # Settings of the process
        # torch limits how often a function is compiled, and modules of one class share their
        # functions.
        limit = CONFIG.recompile_limit * len({repr(module) for module in modules})
        self._changes.enter_context(CONFIG.patch(recompile_limit=limit))
        if self.memory_budget is not None:
            patch = torch._functorch.config.patch(activation_memory_budget=self.memory_budget)
            self._changes.enter_context(patch)
        if self.graph_breaks:
            torch._logging.set_logs(graph_breaks=True, recompiles=True)  # pyright: ignore[reportPrivateImportUsage]
            self._changes.callback(torch._logging.set_logs)  # pyright: ignore[reportPrivateImportUsage]

        # Compile. The test that follows a fit finds the modules compiled. torch (2.15) compiles
        # divided tensors with sizes that it does not know to a graph without end.
        dynamic = (
            False if getattr(trainer.strategy, "tensor_parallel_size", 1) > 1 else self.dynamic
        )
        for module in modules:
            if module not in self._compiled:
                compile_in_place(
                    module,
                    mode=self.mode,
                    dynamic=dynamic,
                    fullgraph=self.fullgraph,
                    backend=self.backend,
                )
                self._compiled.append(module)

        # As the validation within a fit: code for inference mode would be compiled beside it, for
        # the test alone.
        for loop in (trainer.validate_loop, trainer.test_loop, trainer.predict_loop):
            loop.inference_mode = False

    def _select_modules(self, model: LightningModule) -> list[nn.Module]:
        # Here, as most runs compile nothing
        from litlab.nn.selection import find_blocks, find_networks, select_modules

        if self.children is not None:
            return list(select_modules(model, self.children, "compile.children").values())
        modules = list(find_networks(model).values())
        if self.blocks:
            modules = [part for network in modules for part in find_blocks(network).values()]
        if not modules:
            raise UserError(
                f"compile.children: {type(model).__name__} has no blocks (in a Sequential or "
                "ModuleList) or no children with parameters; name the modules to compile"
            )
        return modules

    def on_train_batch_start(self, *args: Any, **kwargs: Any) -> None:
        """Tell CUDA graphs that a step begins."""
        # A CUDA graph's outputs live until the next step. By default PyTorch takes each call
        # outside training for a step of its own, and the second of several compiled children would
        # find the first one's output overwritten.
        if self.mode in ("reduce-overhead", "max-autotune"):
            torch.compiler.cudagraph_mark_step_begin()

    on_validation_batch_start = on_test_batch_start = on_predict_batch_start = on_train_batch_start

    def teardown(self, *_: Any, **__: Any) -> None:
        if self.graph_breaks and not self._is_told:  # of a fit, not again of the test that follows
            self._is_told = True
            graphs = get_compilation_metrics()[self._graphs_before :]
            guards = sum(graph.guard_count or 0 for graph in graphs)
            breaks = counters["graph_break"].total()
            rank_zero_info(
                f"compile: {plural(len(graphs), 'graph')} with {plural(guards, 'guard')}, "
                f"{plural(breaks, 'graph break')}"
            )
        self._changes.close()

    on_exception = teardown


def compile_in_place(module: nn.Module, **options: Any) -> None:
    """Compile a module so that its parameters keep their names.

    Args:
        module: The module.
        options: Those of ``torch.compile``.
    """
    # By itself, nn.Module.compile silently does nothing for PyTorch's own modules, such as
    # nn.Sequential, before torch 2.15: the compiler skips PyTorch's files, but for this frame.
    with CONFIG.patch(wrap_top_frame=True):
        module.compile(**options)


def explain_failure(error: BaseException) -> str | None:
    """Return one line for what ``torch.compile`` raises: what is wrong, where, and what to set;
    None for another exception.
    """
    if not isinstance(error, TorchDynamoException):
        return None
    cause = getattr(error, "inner_exception", error)
    is_backend = isinstance(error, BackendCompilerFailed | InvalidBackend)
    stack = [] if is_backend else getattr(error, "real_stack", None) or []
    location = "".join(f" in {frame.filename}:{frame.lineno}" for frame in stack[-1:])
    key, advice = "fullgraph", "change that line, set it to false"
    if is_backend:
        key, advice = "backend", "correct that"
    return (
        f"compile.{key}: {first_line(cause).rstrip('.')}{location}; {advice}, or set compile.mode: "
        "null"
    )

"""torch.compile for chosen parts of the model."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any
from weakref import WeakSet

import torch
import torch._functorch.config
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import nn

from litlab.callbacks.compilations import Compilations
from litlab.callbacks.compile_cache import CompileCache, is_chosen_by_user
from litlab.callbacks.compile_parts import (
    check_backend,
    check_recurrent,
    chosen_modules,
    compile_in_place,
    most_unlike,
)
from litlab.callbacks.graph_breaks import GraphBreakLog, log_graph_breaks
from litlab.callbacks.reporting import run_folder
from litlab.errors import UserError
from litlab.parallel.groups import divides_layers
from litlab.types import ClosedUnitInterval

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
WITH_CUDA_GRAPHS = ("reduce-overhead", "max-autotune")


class Compile(Callback):
    """Compile parts of the model with ``torch.compile``, in place, before the run starts.

    In place means that the parameters keep their names: checkpoints are the same with and without compilation and load
    either way. The LightningModule itself is never compiled, because each ``self.log`` would break its graph.

    ``seconds`` is how long all compiling has taken, and ``report()`` has it in words, with whether the code came from
    the cache of an earlier run. The command line sets ``cache``, the folder where an experiment's compiled code is
    kept; without it, or where the variable TORCHINDUCTOR_CACHE_DIR is set, PyTorch chooses.

    Args:
        mode: ``null`` to leave the model as it is; ``default`` for the compiler's balance of compile time and speed;
            ``reduce-overhead`` for small batches on a GPU (CUDA graphs; needs input shapes that stay the same);
            ``max-autotune`` to try out several kernels for each operation (long compile time, CUDA graphs);
            ``max-autotune-no-cudagraphs`` for the same without CUDA graphs.
        children: Modules to compile by their names, dotted from the LightningModule, such as ``[network.encoder]``.
            ``*`` stands for anything: ``[network.blocks.*]`` compiles each block, which for blocks that are alike takes
            the time of one. A list of modules is compiled one by one, too. ``null`` compiles ``network``, or where
            there is none every direct child that has parameters.
        dynamic: ``true`` compiles for any input size at once, ``false`` again for each new size, ``null`` once more,
            for any size, when a size changes.
        fullgraph: Whether to fail where the compiler cannot turn a module into one single graph.
        backend: The compiler's backend; ``inductor`` unless you are looking for a bug (``eager``, ``aot_eager``).
        graph_breaks: Whether to log where and why the compiler breaks the graph or compiles again, to stderr and to
            ``graph_breaks.txt`` in the run folder, as ``TORCH_LOGS=graph_breaks,recompiles`` does.
        memory_budget: Share, from 0 to 1, of the memory for activations that the compiler would use if it kept all that
            the backward pass can use; it computes the others again (torch's ``activation_memory_budget``). ``null``
            leaves it to the compiler, which computes again only what costs next to nothing.

    Raises:
        UserError: For an unknown mode, backend or child, for what can't be had on this device or of this model, and
            where this machine has no working compiler.
    """

    def __init__(
        self,
        mode: str | None = None,
        children: list[str] | None = None,
        dynamic: bool | None = None,
        fullgraph: bool = False,
        backend: str = "inductor",
        graph_breaks: bool = False,
        memory_budget: ClosedUnitInterval | None = None,
    ) -> None:
        if mode is not None and mode not in MODES:
            raise UserError(f"compile.mode: {mode!r} is unknown; choose null, {', '.join(MODES)}")
        if mode not in (None, "default") and backend != "inductor":
            raise UserError(f"compile.mode: {mode} needs compile.backend: inductor, not {backend}; set mode: default")
        if memory_budget is not None and (mode is None or backend in ("eager", "aot_eager")):
            wanted = "compile.mode: default" if mode is None else "compile.backend: inductor"
            raise UserError(f"compile.memory_budget: {memory_budget} is what the compiler may use; set {wanted} too")
        self.mode = mode
        self.children = children
        self.dynamic = dynamic
        self.fullgraph = fullgraph
        self.backend = backend
        self.graph_breaks = graph_breaks
        self.memory_budget = memory_budget
        self.cache: Path | None = None
        self._budget = ExitStack()  # closed when it ends to hold
        self._compiled: WeakSet[nn.Module] = WeakSet()  # setup runs again for the test after fit
        self._compilations = Compilations(dynamic)
        self._open_cache: CompileCache | None = None
        self._log: GraphBreakLog | None = None

    @property
    def seconds(self) -> float:
        """Seconds spent compiling so far, in all stages; on this rank."""
        self._compilations.look()
        return self._compilations.seconds

    def report(self) -> str:
        """Return the seconds in words, whether the code came from the cache, and how often it was compiled again."""
        self._compilations.look()
        return self._compilations.report()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Compile what was chosen, once, whatever the stage."""
        if self.mode is None:
            return
        device = trainer.strategy.root_device
        if self.mode == "reduce-overhead" and device.type != "cuda":
            raise UserError(
                f"compile.mode: reduce-overhead needs a CUDA GPU, and trainer.accelerator runs on {device.type}; set "
                "compile.mode: default"
            )
        if self.dynamic is not False and divides_layers(trainer.strategy):
            # torch (2.15) compiles divided tensors with sizes that it does not know to a graph without end.
            raise UserError(
                "compile.dynamic: layers that trainer.strategy divides (tensor_parallel_size) are compiled for sizes "
                "that are known; set it to false"
            )
        chosen = chosen_modules(pl_module, self.children)
        self._compilations.start(most_unlike(chosen.values()))
        if self.cache is not None and self.backend == "inductor" and not is_chosen_by_user():
            self._open_cache = CompileCache(self.cache)
        if self.memory_budget is not None:
            patch = torch._functorch.config.patch(activation_memory_budget=self.memory_budget)
            self._budget.enter_context(patch)
        modules = {name: module for name, module in chosen.items() if module not in self._compiled}
        if modules:
            check_recurrent(modules, self.fullgraph)
            check_backend(self.backend, device)
            self._compilations.leave_out()
        for module in modules.values():
            compile_in_place(
                module, mode=self.mode, dynamic=self.dynamic, fullgraph=self.fullgraph, backend=self.backend
            )
            self._compiled.add(module)
        # As the validation within a fit: code for inference mode would be compiled beside it, for the test alone.
        for loop in (trainer.validate_loop, trainer.test_loop, trainer.predict_loop):
            loop.inference_mode = False
        if self.graph_breaks:
            folder = run_folder(trainer)
            if trainer.is_global_zero:
                log_graph_breaks(on=True)
                self._log = GraphBreakLog(folder / "graph_breaks.txt") if folder is not None else None

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say what was compiled again, and why."""
        if self.mode is not None:
            self._compilations.look(say=True)

    on_validation_epoch_end = on_test_epoch_end = on_predict_epoch_end = on_train_epoch_end

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Say how often the graph was broken; leave the process as it was found."""
        self._end()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the process as it was found."""
        self._end()

    def _end(self) -> None:
        self._compilations.stop()
        self._budget.close()
        if self._open_cache is not None:
            self._open_cache.close()
            self._open_cache = None
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

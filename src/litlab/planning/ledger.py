"""The memory of a training step: every tensor is counted for as long as it lives."""

import weakref
from collections import Counter
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed._tools.common_utils import get_untyped_storages
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from litlab.nn.selection import find_blocks, select_modules
from litlab.parallel.plan import ParallelPlan, networks

PARAMETERS, GRADIENTS, OPTIMIZER, AVERAGE = "parameters", "gradients", "optimizer state", "averages, metrics"
SHARDED = (PARAMETERS, GRADIENTS, OPTIMIZER, AVERAGE)  # what FSDP2 divides
BUFFERS, ACTIVATIONS, WEIGHTS, TEMPORARY = "buffers", "activations", "copies of weights", "temporary"
START, FORWARD, BACKWARD, UPDATE = "start", "forward pass", "backward pass", "optimizer's step"
MADE_IN = {START: AVERAGE, FORWARD: ACTIVATIONS, BACKWARD: TEMPORARY, UPDATE: TEMPORARY}


class Use(NamedTuple):
    """What some memory is for.

    Args:
        kind: Such as `PARAMETERS`.
        block: Name of the block of the network that it belongs to; empty outside of the blocks.
        is_divided: Whether tensor parallelism divides it.
    """

    kind: str
    block: str = ""
    is_divided: bool = False


class Ledger(TorchDispatchMode):
    """Counts the bytes of all tensors that are made while it is active.

    torch's MemTracker tells neither phases nor blocks apart, takes what an optimizer computes with for its state, and
    refuses a second batch.

    Attributes:
        phase: What the training is doing.
        alive: Bytes by use, now.
        peaks: The same by phase, where they were most without what is `SHARDED`, which changes little within a phase.
        layers: Names of the modules whose forward pass is running, the innermost last.
        blocks: Bytes that each block has returned, by its name.
        summed: Bytes of outputs that tensor parallelism has summed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.phase = START
        self.alive: Counter[Use] = Counter()
        self.peaks: dict[str, Counter[Use]] = {}
        self.layers: list[str] = []
        self.blocks: dict[str, int] = {}
        self.summed = 0
        self._uses: dict[int, Use] = {}  # by storage

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(not issubclass(kind, FakeTensor) for kind in types):
            return NotImplemented  # a quantized tensor or the like is made of others, which come here next
        if func is torch.ops.aten._local_scalar_dense.default and getattr(args[0], "constant", 1) is None:
            return 1  # made up: no decision of a step depends on a number, as it would have to wait for the device
        result = func(*args, **(kwargs or {}))

        given = [self.use_of(leaf) for leaf in tree_iter(args) if isinstance(leaf, Tensor)]
        use = Use(MADE_IN[self.phase])
        if self.phase == START and given:
            use = given[0]._replace(kind=AVERAGE)
        if self.layers:
            block = next((name for name in self.layers if name in self.blocks), "")
            use = Use(use.kind, block, any(one.is_divided for one in given))
        if func is torch.ops.aten._to_copy.default and given[0].kind == PARAMETERS:
            use = use._replace(kind=WEIGHTS)
        for leaf in tree_iter(result):
            if isinstance(leaf, Tensor):
                self._enter(leaf, use)
        return result

    def use_of(self, tensor: Tensor) -> Use:
        """Return what a tensor is for."""
        return self._uses.get(tensor.untyped_storage()._cdata, Use(""))

    def assign(self, tensor: Any, use: Use) -> None:
        """Say what a tensor is for, which was counted by another use."""
        for storage in get_untyped_storages(tensor) if isinstance(tensor, Tensor) else ():
            self.alive[self._uses[storage._cdata]] -= storage.nbytes()
            self.alive[use] += storage.nbytes()
            self._uses[storage._cdata] = use

    def watch(self, model: nn.Module) -> None:
        """Learn what the parameters of a model are for, and when its modules run; they get hooks."""
        divided: list[nn.Module] = []
        rows: list[nn.Module] = []
        for name, network in networks(model).items():
            self.blocks |= {f"{name}.{block}": 0 for block in find_blocks(network)}
            plan = getattr(network, "parallel_plan", ParallelPlan())
            rows += select_modules(network, plan.rows, name).values()
            divided += [*rows, *select_modules(network, plan.columns, name).values()]

        weights = {parameter for layer in divided for parameter in layer.parameters()}
        for name, parameter in model.named_parameters():
            block = next((block for block in self.blocks if name.startswith(f"{block}.")), "")
            self.assign(parameter, Use(PARAMETERS, block, parameter in weights))
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._assign_gradient)
        for buffer in model.buffers():
            self.assign(buffer, Use(BUFFERS))

        names = {module: name for name, module in model.named_modules()}

        # Functions rather than methods: a copy of a module must not copy the ledger.
        def enter(module: nn.Module, args: Any) -> None:
            self.layers.append(names.get(module, type(module).__name__))

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            name = self.layers.pop()
            if name in self.blocks and isinstance(output, Tensor):
                self.blocks[name] = output.nbytes
            if module in rows:
                self.summed += output.nbytes
                self.assign(output, self.use_of(output)._replace(is_divided=False))

        for module in names:
            module.register_forward_pre_hook(enter)
            module.register_forward_hook(leave)

    def _assign_gradient(self, parameter: Tensor) -> None:
        self.assign(parameter.grad, self.use_of(parameter)._replace(kind=GRADIENTS))

    def _enter(self, tensor: Tensor, use: Use) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata in self._uses:
            return
        self._uses[storage._cdata] = use
        self.alive[use] += storage.nbytes()
        weakref.finalize(storage, self._leave, storage._cdata, storage.nbytes())
        if _without_sharded(self.alive) > _without_sharded(self.peaks.get(self.phase, Counter())):
            self.peaks[self.phase] = self.alive.copy()

    def _leave(self, key: int, size: int) -> None:
        self.alive[self._uses.pop(key)] -= size


def _without_sharded(memory: Counter[Use]) -> int:
    return sum(size for use, size in memory.items() if use.kind not in SHARDED)

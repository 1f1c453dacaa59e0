"""One training step on tensors without numbers: each is counted for as long as it lives."""

import logging
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only
from torch.utils.data import DataLoader
from torchmetrics import Metric

from litlab.callbacks.gradients import FreeGradients
from litlab.cli.precision import ExperimentTrainer
from litlab.errors import UserError, first_line
from litlab.nn.selection import find_blocks, select_modules
from litlab.parallel.plan import networks, plan_of
from litlab.util.steps import Enough

PARAMETERS, GRADIENTS, OPTIMIZER, AVERAGE = "parameters", "gradients", "optimizer state", "buffers, averages"
SHARDED = (PARAMETERS, GRADIENTS, OPTIMIZER, AVERAGE)  # what FSDP2 divides
ACTIVATIONS, WEIGHTS, TEMPORARY = "activations", "copies of weights", "temporary"
START, FORWARD, BACKWARD, UPDATE = "start", "forward pass", "backward pass", "optimizer's step"
MADE_IN = {START: AVERAGE, FORWARD: ACTIVATIONS, BACKWARD: TEMPORARY, UPDATE: TEMPORARY}

aten: Any = torch.ops.aten


def measure(
    build_model: Callable[[], LightningModule], callbacks: list[Callback], batch: Any, is_gpu: bool, **settings: Any
) -> "Ledger":
    """Look at a training step on one device.

    Args:
        build_model: Makes the model.
        callbacks: Those that change what a step keeps.
        batch: A training batch.
        is_gpu: Whether it is planned for a GPU.
        **settings: Arguments of the Trainer.

    Raises:
        UserError: If the step can't be had without numbers.
    """
    ledger = Ledger()
    batches: Any = [batch] * 1000
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings(action="ignore"))  # what Lightning says of so short a fit
        stack.callback(logging.disable, logging.NOTSET)
        logging.disable(logging.WARNING)
        trainer = ExperimentTrainer(
            accelerator="cpu", devices=1, strategy=FakeDevice(ledger, is_gpu), plugins=[LightningEnvironment()],
            barebones=True, callbacks=[*callbacks, FreeGradients()], **settings,
        )  # fmt: skip
        ledger.is_mixed = "mixed" in str(trainer.precision)
        with torch.device("meta"):
            model = build_model()
        if not model.automatic_optimization:
            raise UserError(f"--plan: {type(model).__name__} steps its optimizers itself; use --check, which measures")
        trainer.precision_plugin.convert_module(model)  # in place, which tensors without numbers can't be

        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(ledger)
        try:
            with suppress(Enough):
                trainer.fit(model, DataLoader(batches, batch_size=None))
        except RuntimeError as error:  # of torch
            layers = [name for name, module in model.named_modules() if module in ledger.running]
            raise UserError(
                f"--plan: {layers[-1] if layers else 'training_step'} can't do without the numbers in its tensors "
                f"({first_line(error)}); use --check, which measures"
            ) from error
    return ledger


class FakeDevice(SingleDeviceStrategy):
    """One device, on which a model of the meta device gets tensors without numbers.

    It tells a ledger what a fit is doing. What counts is the second step, when the optimizer has its state.
    """

    def __init__(self, ledger: "Ledger", is_gpu: bool) -> None:
        super().__init__(torch.device("cpu"))
        self.ledger, self.is_gpu = ledger, is_gpu

    def setup(self, trainer: Trainer) -> None:
        self.trainer, model = trainer, trainer.lightning_module
        fakes = {tensor: torch.empty_like(tensor, device="cpu") for tensor in (*model.parameters(), *model.buffers())}
        for parameter in model.parameters():  # one that is tied stays so
            fakes[parameter] = nn.Parameter(fakes[parameter], parameter.requires_grad)
        for module in model.modules():
            for name, tensor in {**module._parameters, **module._buffers}.items():
                setattr(module, name, fakes.get(tensor))
            if isinstance(module, Metric):
                module._apply(lambda tensor: torch.empty_like(tensor, device="cpu"))
        self.ledger.watch(model)

        self.setup_optimizers(trainer)
        for group in (group for optimizer in self.optimizers for group in optimizer.param_groups):
            if self.is_gpu and group.get("foreach", False) is None and not group.get("fused"):
                group["foreach"] = True  # torch's choice on GPUs

    def on_train_start(self) -> None:
        # The last epoch needs most: all is trained that was frozen.
        self.trainer.fit_loop.epoch_progress.current.completed = max(self.trainer.max_epochs or 1, 1) - 1

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        for weight in self.trainer.lightning_module.parameters():
            if batch_idx == 0 and weight.requires_grad:
                weight.register_post_accumulate_grad_hook(self.ledger.assign_gradient)
        for parameter, state in (entry for optimizer in self.optimizers for entry in optimizer.state.items()):
            for value in state.values():
                self.ledger.assign(value, self.ledger.use_of(parameter)._replace(kind=OPTIMIZER))
        if self.trainer.global_step == 2:
            raise Enough
        self.ledger.begin(FORWARD)
        self.ledger.summed = 0

    def pre_backward(self, closure_loss: Tensor) -> None:
        self.ledger.begin(BACKWARD)

    def post_backward(self, closure_loss: Tensor) -> None:
        self.ledger.begin(UPDATE)

    def teardown(self) -> None:
        """Leave everything where it is."""


class Use(NamedTuple):
    """What some memory is for.

    Args:
        kind: Such as `PARAMETERS`.
        block: Number of the block of the network that it belongs to, from 1; 0 outside of the blocks.
        is_divided: Whether tensor parallelism divides it.
    """

    kind: str
    block: int = 0
    is_divided: bool = False


class Ledger(TorchDispatchMode):
    """Counts the bytes of all tensors that are made while it is active.

    torch's MemTracker tells neither phases nor blocks apart, takes what an optimizer computes with for its state, and
    refuses a second batch.

    Attributes:
        phase: What the training is doing.
        alive: Bytes by use, now.
        peaks: The same by phase, where they were most without what is `SHARDED`, which changes little within a phase.
        running: Modules whose forward pass is running, the innermost last.
        blocks: Numbers of the blocks.
        between: Bytes from a block to the next.
        summed: Bytes that tensor parallelism sums for a batch: outputs of layers, and as much for gradients of inputs.
        is_mixed: Whether weights are computed with in half of their bytes.
    """

    is_mixed = False

    def __init__(self) -> None:
        super().__init__()
        self.alive: Counter[Use] = Counter()
        self.peaks: dict[str, Counter[Use]] = {}
        self.running: list[nn.Module] = []
        self.blocks: dict[nn.Module, int] = {}
        self.between = self.summed = 0
        self._uses: dict[int, Use] = {}  # by storage
        self.begin(START)

    def begin(self, phase: str) -> None:
        """Say what the training does next."""
        self.phase = phase
        self.running.clear()  # what is computed again in the backward pass may end in the middle of a module
        self.peaks[phase] = self.alive.copy()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Numbers are made up: no decision of a step depends on one, as it would have to wait for the device.
        if func is aten._local_scalar_dense.default and getattr(args[0], "constant", 1) is None:
            return 1
        result = func(*args, **(kwargs or {}))

        given = [self.use_of(leaf) for leaf in tree_iter(args) if isinstance(leaf, Tensor)]
        use = Use(MADE_IN[self.phase])
        if self.running:
            block = next((self.blocks[module] for module in self.running if module in self.blocks), 0)
            use = Use(use.kind, block, any(one.is_divided for one in given))
        if given and given[0].kind == PARAMETERS:
            if self.phase == START:
                use = given[0]._replace(kind=AVERAGE)
            elif func is aten._to_copy.default:
                use = use._replace(kind=WEIGHTS)
        tree_map_only(Tensor, lambda leaf: self._enter(leaf.untyped_storage(), use), result)
        return result

    def use_of(self, tensor: Tensor) -> Use:
        """Return what a tensor is for."""
        return self._uses.get(tensor.untyped_storage()._cdata, Use(""))

    def assign(self, tensor: Any, use: Use) -> None:
        """Say what a tensor is for, which was counted by another use."""
        if isinstance(tensor, Tensor):
            storage = tensor.untyped_storage()
            self.alive[self._uses[storage._cdata]] -= storage.nbytes()
            self.alive[use] += storage.nbytes()
            self._uses[storage._cdata] = use

    def assign_gradient(self, weight: Tensor) -> None:
        """Say what the gradient of a parameter is for."""
        self.assign(weight.grad, self.use_of(weight)._replace(kind=GRADIENTS))

    def watch(self, model: nn.Module) -> None:
        """Learn what the parameters of a model are for, and when its modules run; they get hooks."""
        rows: list[nn.Module] = []
        divided: list[nn.Module] = []
        for name, network in networks(model).items():
            for block in find_blocks(network).values():
                self.blocks[block] = len(self.blocks) + 1
            plan = plan_of(network)
            rows += select_modules(network, plan.rows, name).values()
            divided += [*rows, *select_modules(network, plan.columns, name).values()]

        weights = {weight for layer in divided for weight in layer.parameters()}
        numbers = {weight: number for block, number in self.blocks.items() for weight in block.parameters()}
        for weight in model.parameters():
            self.assign(weight, Use(PARAMETERS, numbers.get(weight, 0), weight in weights))

        # Functions rather than methods: a copy of a module must not copy the ledger.
        def enter(module: nn.Module, args: Any) -> None:
            self.running.append(module)

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            self.running.pop()
            if module in self.blocks and isinstance(output, Tensor):
                self.between = max(self.between, output.nbytes)
            if module in rows:
                self.summed += output.nbytes * (2 if self.phase == FORWARD else 1)  # once when computed again
                self.assign(output, self.use_of(output)._replace(is_divided=False))

        for module in model.modules():
            module.register_forward_pre_hook(enter)
            module.register_forward_hook(leave)

    def _enter(self, storage: torch.UntypedStorage, use: Use) -> None:
        if storage._cdata in self._uses:
            return
        self._uses[storage._cdata] = use
        self.alive[use] += storage.nbytes()
        weakref.finalize(storage, self._leave, storage._cdata, storage.nbytes())
        if _without_sharded(self.alive) > _without_sharded(self.peaks[self.phase]):
            self.peaks[self.phase] = self.alive.copy()

    def _leave(self, key: int, size: int) -> None:
        self.alive[self._uses.pop(key)] -= size


def _without_sharded(memory: Counter[Use]) -> int:
    return sum(size for use, size in memory.items() if use.kind not in SHARDED)

"""One training step on tensors without numbers: each is counted for as long as it lives."""

import logging
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.data import DataLoader
from torchmetrics import Metric

from litlab.callbacks import OptimizerInBackward
from litlab.callbacks.memory import FreeGradients
from litlab.cli.precision import ExperimentTrainer
from litlab.errors import UserError, first_line
from litlab.nn.selection import find_blocks, find_networks, select_modules
from litlab.parallel.plan import plan_of
from litlab.util.steps import Enough, tensors


@dataclass
class Step:
    """A training step on one device, in bytes."""

    # Outside of the blocks of the networks, and in each block
    parameters: list[int] = field(default_factory=list)
    # The same of the weights that tensor parallelism divides
    divided: list[int] = field(default_factory=list)
    rows: int = 0  # layers whose outputs tensor parallelism sums
    gradients: int = 0  # of the parameters that are trained
    states: int = 0  # of the optimizers
    average: int = 0  # buffers, and averages of the weights
    # Activations and temporary tensors of the forward and backward pass, at their peak
    passes: int = 0
    update: int = 0  # temporary tensors of the optimizer's step, at their peak
    casts: int = 0  # copies of weights in another type, which are among `passes`
    # What the forward pass of each block keeps for the other one
    stored: dict[int, int] = field(default_factory=dict)
    between: int = 0  # from a block to the next


class Ledger(FakeTensorMode):
    """Counts the bytes of all tensors that are made while it is active, until they are freed. None
    of them has numbers.

    torch's MemTracker replaces a function of torch meanwhile, and refuses networks that a step
    calls twice.
    """

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.alive = self.peak = self.casts = 0
        self._storages: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Numbers are made up: no decision of a step depends on one, as it would have to wait for
        # the device.
        asks = torch.Tag.data_dependent_output in func.tags
        if asks and getattr(args[0], "constant", 1) is None:
            return 1
        result: Any = super().__torch_dispatch__(func, types, args, kwargs)
        for tensor in tensors(result):
            self._enter(tensor.untyped_storage())
        if args and isinstance(args[0], nn.Parameter) and is_cast(args[0], result):
            self.casts += result.nbytes
        return result

    def _enter(self, storage: torch.UntypedStorage) -> None:
        key = id(storage)
        if key not in self._storages:
            self._storages.add(key)
            self.alive += storage.nbytes()
            self.peak = max(self.peak, self.alive)
            weakref.finalize(storage, self._leave, key, storage.nbytes())

    def _leave(self, key: int, size: int) -> None:
        self._storages.remove(key)
        self.alive -= size


def is_cast(weight: Tensor, result: Any) -> bool:
    """Return whether an operation has made a copy of a weight in another type."""
    return (
        isinstance(result, Tensor)
        and result.is_floating_point()
        and result.dtype != weight.dtype
        and result.shape == weight.shape
    )


class FakeDevice(SingleDeviceStrategy):
    """One device, whose tensors have no numbers. It notes what the last batch of the second step
    needs.

    Then the optimizer has its state, and gradients are there that are added to.
    """

    def __init__(self, ledger: Ledger, is_gpu: bool) -> None:
        super().__init__(torch.device("cpu"))
        self.ledger, self.step, self.is_gpu = ledger, Step(), is_gpu
        # Modules in their forward pass, and what was alive at its start
        self.running: list[tuple[str, int]] = []

    def setup(self, trainer: Trainer) -> None:
        self.trainer, model = trainer, trainer.lightning_module
        fakes = {
            tensor: torch.empty_like(tensor, device="cpu")
            for tensor in (*model.parameters(), *model.buffers())
        }
        for parameter in model.parameters():  # one that is tied stays so
            fakes[parameter] = nn.Parameter(fakes[parameter], parameter.requires_grad)
        for module in model.modules():
            for name, tensor in (
                *module.named_parameters(recurse=False, remove_duplicate=False),
                *module.named_buffers(recurse=False, remove_duplicate=False),
            ):
                setattr(module, name, fakes[tensor])
            if isinstance(module, Metric):
                module.cpu()
        self.watch(model)
        self.setup_optimizers(trainer)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                if self.is_gpu and group.get("foreach", False) is None and not group.get("fused"):
                    group["foreach"] = True  # torch's choice on GPUs

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        if self.trainer.global_step == 2:
            step = self.step
            states = [list(optimizer.state.values()) for optimizer in self.optimizers]
            step.states = sum(value.nbytes for value in tensors(states))
            step.average = self.start - sum(step.parameters) - step.gradients - step.states
            step.update = self.ledger.peak - self.start
            raise Enough
        self.start = self.ledger.peak = self.ledger.alive
        self.ledger.casts = 0
        self.is_forward = True

    def pre_backward(self, closure_loss: Tensor) -> None:
        self.is_forward = False
        self.step.casts = self.ledger.casts

    def post_backward(self, closure_loss: Tensor) -> None:
        self.step.passes = self.ledger.peak - self.start
        self.ledger.peak = self.ledger.alive
        self.step.gradients = sum(
            weight.nbytes
            for weight in self.trainer.lightning_module.parameters()
            if weight.grad is not None
        )

    def teardown(self) -> None:
        """Leave everything where it is."""

    def watch(self, model: nn.Module) -> None:
        """Note the weights of a model, and follow its modules by hooks."""
        blocks: list[nn.Module] = []
        divided: set[nn.Parameter] = set()
        for path, network in find_networks(model).items():
            blocks += find_blocks(network).values()
            plan = plan_of(network)
            self.step.rows += len(select_modules(network, plan.rows, path))
            for layer in select_modules(network, (*plan.columns, *plan.rows), path).values():
                divided.update(layer.parameters())
        parts = [set(block.parameters()) for block in blocks]
        for part in (set(model.parameters()).difference(*parts), *parts):
            self.step.parameters.append(sum(weight.nbytes for weight in part))
            self.step.divided.append(sum(weight.nbytes for weight in part & divided))

        names = {module: name for name, module in model.named_modules()}

        def enter(module: nn.Module, args: Any) -> None:
            self.running.append((names[module], self.ledger.alive))

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            _, before = self.running.pop()
            if self.is_forward and module in blocks:
                self.step.stored[blocks.index(module) + 1] = self.ledger.alive - before
                self.step.between = max(self.step.between, getattr(output, "nbytes", 0))

        for module in names:
            module.register_forward_pre_hook(enter)
            module.register_forward_hook(leave)


def measure(
    build_model: Callable[[], LightningModule],
    callbacks: list[Callback],
    batch: Any,
    precision: Any,
    is_gpu: bool,
) -> Step:
    """Look at a training step on one device. The callbacks are those that change what a step
    keeps.
    """
    ledger = Ledger()
    device = FakeDevice(ledger, is_gpu)
    batches: Any = [batch] * 1000
    frees = any(isinstance(callback, OptimizerInBackward) for callback in callbacks)
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):  # what Lightning says of so short a fit
            trainer = ExperimentTrainer(
                accelerator="cpu", devices=1, strategy=device, plugins=[LightningEnvironment()],
                barebones=True, callbacks=[*callbacks, FreeGradients()],
                accumulate_grad_batches=1 if frees else 2, precision=precision,
            )  # fmt: skip
            with torch.device("meta"):
                model = build_model()
            if not model.automatic_optimization:
                raise UserError(
                    f"--plan: {type(model).__name__} steps its optimizers itself; use --check"
                )
            # In place, which tensors without numbers can't be
            trainer.precision_plugin.convert_module(model)
            with ledger, suppress(Enough):
                trainer.fit(model, DataLoader(batches, batch_size=None))
    except RuntimeError as error:  # of torch
        layer = device.running[-1][0] if device.running else ""
        raise UserError(
            f"--plan: {layer or 'training_step'} needs the values of its tensors "
            f"({first_line(error)}); use --check, which measures"
        ) from error
    finally:
        logging.disable(logging.NOTSET)
    return device.step

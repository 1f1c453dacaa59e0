"""One training step of a layout on fake tensors: what it holds in memory and sends."""

import logging
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedFakeTensorException,
    UnsupportedOperatorException,
)
from torch.distributed.device_mesh import init_device_mesh

from litlab.callbacks import ActivationCheckpointing, Freeze
from litlab.errors import UserError, first_line
from litlab.parallel.plan import matches, networks, plan_of
from litlab.planning.fake import as_fake, as_on_gpu, processes, without_numbers
from litlab.planning.layout import Devices, Layout
from litlab.planning.ledger import (
    ACTIVATIONS,
    BACKWARD,
    FORWARD,
    GRADIENTS,
    OPTIMIZER,
    PARAMETERS,
    TEMPORARY,
    UPDATE,
    Ledger,
    bytes_of,
)
from litlab.planning.stand_ins import Batches, OneDevice, Sharded

# What torch (2.10 to 2.15) raises where a step needs the numbers of a fake tensor, or an operation without a fake form.
NEEDS_NUMBERS = (
    DynamicOutputShapeException,
    DataDependentOutputException,
    UnsupportedOperatorException,
    UnsupportedFakeTensorException,
)
ALSO = (".numpy() is not supported for tensor subclasses", "no fake impl registered")  # RuntimeErrors that begin so


@dataclass
class Block:
    """What one block of a network has and makes, in bytes."""

    parameters: int
    activations: int = 0
    output: int = 0


@dataclass
class Measured:
    """A step of one device: bytes by kind."""

    parameters: int  # and buffers
    buffers: int
    gradients: int
    state: int  # of the optimizer
    peaks: dict[str, Counter[str]]  # by phase; in forward and backward passes without the optimizer's state
    device_peaks: dict[str, Counter[str]]  # without what CPU offload takes away, by phase
    sent: Counter[tuple[str, str]]  # by (collective, phase)
    blocks: list[Block]
    average: int = 0  # bytes that a copy of the model takes, in float32
    no_stages: str = ""  # why a pipeline can't have it; empty if it may


@dataclass(frozen=True)
class Job:
    """What is planned.

    Args:
        build: Makes the LightningModule and the callbacks that belong to a step.
        trainer: Makes the Trainer, with the settings of the run and those that are given.
        data: The run's data, set up.
        batch: A training batch.
        accumulated: Batches of an optimizer step.
        gpus: Whether it is planned for GPUs.
        average: Whether the weights are averaged.
    """

    build: Callable[[], tuple[LightningModule, list[Callback]]]
    trainer: Callable[..., Trainer]
    data: LightningDataModule
    batch: Any
    accumulated: int
    gpus: bool
    average: bool


class _Enough(Exception):
    """The step has been looked at."""


def measure(job: Job, layout: Layout, devices: Devices, updates: bool = True) -> Measured:
    """Look at one step.

    Args:
        job: What is trained.
        layout: How it is divided. Pipelines and DDP are measured like one device.
        devices: Among which.
        updates: Whether to look at the optimizer's step, too.

    Raises:
        UserError: If the layout does not go with the model, or the step can't be had without numbers.
    """
    ledger, divided = Ledger(), layout.kind == "sharded" and devices.count > 1
    log = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # what Lightning says of a fit without validation, for each layout
            mesh = None
            if divided:
                stack.enter_context(processes(devices.count))
                shape = (devices.count // layout.tensor, layout.tensor)
                mesh = init_device_mesh("cpu", shape, mesh_dim_names=("data_parallel", "tensor_parallel"))
            mode = stack.enter_context(without_numbers())
            stack.enter_context(ledger.resizing())
            if job.gpus:
                stack.enter_context(as_on_gpu())
            stack.enter_context(ledger)
            model, callbacks = job.build()
            if layout.checkpointing and not any(
                isinstance(callback, ActivationCheckpointing) for callback in callbacks
            ):
                callbacks.append(ActivationCheckpointing())
            freezes = [rule for one in callbacks if isinstance(one, Freeze) for rule in one.rules]
            step = _Step(ledger, job, updates)
            if any(rule.epochs for rule in freezes):
                step.result.no_stages = "freeze.rules: it can't unfreeze parameters; set epochs to null"
            if not divided:  # what is trained from a later epoch on needs memory then; a sharded model can't do so
                for rule in freezes:
                    rule.epochs = None if rule.epochs is None else 0
            step.result.average = bytes_of([*model.parameters(), *model.buffers()])
            strategy = OneDevice(step) if mesh is None else Sharded(step, layout, mesh)
            trainer = job.trainer(
                accelerator="cpu", devices=1, num_nodes=1, strategy=strategy, plugins=[LightningEnvironment()],
                callbacks=[*callbacks, step], accumulate_grad_batches=min(job.accumulated, 2),
            )  # fmt: skip
            with suppress(_Enough):
                trainer.fit(model, datamodule=Batches(job.data, as_fake(job.batch, mode)))
            return step.result
    except RuntimeError as error:
        if isinstance(error, NEEDS_NUMBERS) or any(text in str(error) for text in ALSO):
            raise UserError(
                f"--plan: a training step needs a tensor's numbers ({first_line(error)}), which a plan does not have, "
                "so what the step needs is not known; --check measures it"
            ) from error
        raise
    finally:
        log.setLevel(level)


class _Step(Callback):
    """Tells the ledger what is what."""

    def __init__(self, ledger: Ledger, job: Job, updates: bool) -> None:
        self.ledger, self.updates, self.gpus = ledger, updates, job.gpus
        self.left = min(job.accumulated, 2)  # batches
        self.result = Measured(0, 0, 0, 0, ledger.peaks, ledger.device_peaks, ledger.sent, [])
        self._networks: list[list[Block]] = []
        self._called: list[int] = []  # ids of blocks, in the forward pass of a batch

    def set_up(self, model: nn.Module) -> None:
        """Begin, once the model is divided."""
        parameters = list(model.parameters())
        self.result.parameters = self.ledger.own([*parameters, *model.buffers()], PARAMETERS)
        self.result.buffers = bytes_of(model.buffers())
        self.ledger.gradients_of = parameters
        for parameter in (parameter for parameter in parameters if parameter.requires_grad):
            parameter.register_post_accumulate_grad_hook(
                lambda one: self.ledger.own([one.grad] if one.grad is not None else [], GRADIENTS) and None
            )
        for network in networks(model).values():
            names = [name for pattern in plan_of(network).blocks for name in matches(network, pattern)]
            self._networks.append([self._watch(network.get_submodule(name)) for name in names])
        self.result.blocks = [block for blocks in self._networks for block in blocks]

    def _watch(self, block: nn.Module) -> Block:
        found = Block(bytes_of(block.parameters()))
        before = 0

        def enter(*_: Any) -> None:
            nonlocal before
            before = self.ledger.alive[ACTIVATIONS]

        def leave(_: Any, __: Any, output: Any) -> None:
            if self.ledger.phase == FORWARD:
                self._called.append(id(found))
                found.activations = self.ledger.alive[ACTIVATIONS] - before
                found.output = bytes_of([output] if isinstance(output, Tensor) else [])

        block.register_forward_pre_hook(enter)
        block.register_forward_hook(leave)
        return found

    def after_backward(self, trainer: Trainer) -> None:
        """Go on to the optimizer, or end."""
        self.result.gradients = self.ledger.own_gradients()
        for blocks in self._networks:
            wanted = [id(block) for block in blocks]
            if [one for one in self._called if one in wanted] != wanted:
                self.result.no_stages = self.result.no_stages or "its blocks are not called one after the other"
        self._called.clear()
        self.left -= 1
        self.ledger.phase = ""
        if self.left == 0:
            if not self.updates:
                raise _Enough
            self._settle(trainer, BACKWARD)
            self.ledger.phase = UPDATE
            for group in (group for optimizer in trainer.optimizers for group in optimizer.param_groups):
                if self.gpus and group.get("foreach", False) is None and not group.get("fused"):
                    group["foreach"] = True  # torch's choice on GPUs

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """End after the optimizer's step."""
        self.ledger.phase = ""
        if self.left == 0:
            self._settle(trainer, UPDATE)
            raise _Enough

    def _settle(self, trainer: Trainer, phase: str) -> None:
        """Find the optimizer's state, which was temporary at the peak of the phase that has made it."""
        states = (state for optimizer in trainer.optimizers for state in optimizer.state.values())
        tensors = [value for state in states for value in state.values() if isinstance(value, Tensor)]
        made = self.ledger.own(tensors, OPTIMIZER) - self.result.state
        self.result.state += made
        peak = self.ledger.peaks.setdefault(phase, self.ledger.alive.copy())
        peak[TEMPORARY] -= min(made, peak[TEMPORARY])
        peak[OPTIMIZER] = min(made, peak.total()) if made else peak[OPTIMIZER]

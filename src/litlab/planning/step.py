"""Where a training step is, and what in it is of which kind."""

import weakref
from collections import Counter
from dataclasses import dataclass
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.utils._pytree import tree_iter

from litlab.callbacks.averaging import HALVES
from litlab.nn.selection import find_blocks
from litlab.parallel.plan import networks
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
    local_parts,
)


@dataclass(eq=False)
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
    average: int = 0  # bytes of an average of parameters and buffers
    largest: int = 0  # gradient of one parameter
    outputs: int = 0  # bytes that the networks with blocks return
    no_stages: str = ""  # why a pipeline can't have it; empty if it may


class Enough(Exception):
    """The step has been looked at."""


class Step(Callback):
    """Tells the ledger what is what.

    Args:
        ledger: What counts.
        batches: How many to look at before the optimizer's step.
        updates: Whether to look at that, too.
        gpus: Whether it is planned for GPUs.
    """

    def __init__(self, ledger: Ledger, batches: int, updates: bool, gpus: bool) -> None:
        self.ledger, self.updates, self.gpus = ledger, updates, gpus
        self.left = batches
        self.result = Measured(0, 0, 0, 0, ledger.peaks, ledger.device_peaks, ledger.sent, [])
        self._networks: list[list[Block]] = []
        self._called: list[int] = []  # ids of blocks, in the forward pass of a batch
        self._given: Any = None  # what the last one of them got

    def set_up(self, model: nn.Module) -> None:
        """Begin, once the model is divided."""
        parameters = list(model.parameters())
        self.result.parameters = self.ledger.own([*parameters, *model.buffers()], PARAMETERS)
        tensors = (part for one in (*parameters, *model.buffers()) for part in local_parts(one))
        self.result.average = sum(one.numel() * (4 if one.dtype in HALVES else one.element_size()) for one in tensors)
        self.result.buffers = bytes_of(model.buffers())
        self.ledger.gradients_of = parameters
        for parameter in (parameter for parameter in parameters if parameter.requires_grad):
            parameter.register_post_accumulate_grad_hook(
                lambda one: self.ledger.own([one.grad] if one.grad is not None else [], GRADIENTS) and None
            )
        for network in networks(model).values():
            blocks = find_blocks(network)
            if blocks:
                network.register_forward_hook(self._note_output)
            self._networks.append([self._watch(block) for block in blocks.values()])
        self.result.blocks = [block for blocks in self._networks for block in blocks]

    def _watch(self, block: nn.Module) -> Block:
        found = Block(bytes_of(block.parameters()))
        before = 0

        def enter(_: Any, args: Any) -> None:
            nonlocal before
            before = self.ledger.alive[ACTIVATIONS]
            if self.ledger.phase == FORWARD:
                given = _storage(args)
                if given is None or (self._given is not None and self._given() is given):
                    self._refuse_stages()  # they get the same
                self._given = None if given is None else weakref.ref(given)
                self._called.append(id(found))

        def leave(_: Any, __: Any, output: Any) -> None:
            if self.ledger.phase == FORWARD:
                found.activations = self.ledger.alive[ACTIVATIONS] - before
                found.output = bytes_of([output] if isinstance(output, Tensor) else [])

        block.register_forward_pre_hook(enter)
        block.register_forward_hook(leave)
        return found

    def _note_output(self, _: nn.Module, __: Any, output: Any) -> None:
        if self.ledger.phase == FORWARD:
            self.result.outputs = bytes_of(leaf for leaf in tree_iter(output) if isinstance(leaf, Tensor))

    def after_backward(self, trainer: Trainer) -> None:
        """Go on to the optimizer, or end."""
        self.result.gradients = self.ledger.own_gradients()
        gradients = (parameter.grad for parameter in self.ledger.gradients_of)
        self.result.largest = max((bytes_of([one]) for one in gradients if one is not None), default=0)
        for blocks in self._networks:
            wanted = [id(block) for block in blocks]
            if [one for one in self._called if one in wanted] != wanted:
                self._refuse_stages()
        self._called.clear()
        self._given = None
        self.left -= 1
        self.ledger.phase = ""
        if self.left == 0:
            if not self.updates:
                raise Enough
            self._settle(trainer, BACKWARD)
            self.ledger.phase = UPDATE
            for group in (group for optimizer in trainer.optimizers for group in optimizer.param_groups):
                if self.gpus and group.get("foreach", False) is None and not group.get("fused"):
                    group["foreach"] = True  # torch's choice on GPUs

    def _refuse_stages(self) -> None:
        self.result.no_stages = self.result.no_stages or "the network's blocks are not called one after the other"

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """End after the optimizer's step."""
        self.ledger.phase = ""
        if self.left == 0:
            self._settle(trainer, UPDATE)
            raise Enough

    def _settle(self, trainer: Trainer, phase: str) -> None:
        """Find the optimizer's state, which was temporary at the peak of the phase that has made it."""
        states = (state for optimizer in trainer.optimizers for state in optimizer.state.values())
        tensors = [value for state in states for value in state.values() if isinstance(value, Tensor)]
        made = self.ledger.own(tensors, OPTIMIZER) - self.result.state
        self.result.state += made
        peak = self.ledger.peaks.setdefault(phase, self.ledger.alive.copy())
        peak[TEMPORARY] -= min(made, peak[TEMPORARY])
        peak[OPTIMIZER] = min(made, peak.total()) if made else peak[OPTIMIZER]


def _storage(args: Any) -> Any:
    """Return the storage of the first argument; None where it is no tensor, or one of vmap's, which has none."""
    try:
        return args[0].untyped_storage() if args and isinstance(args[0], Tensor) else None
    except NotImplementedError:
        return None

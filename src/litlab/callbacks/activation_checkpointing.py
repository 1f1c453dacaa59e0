"""Activation checkpointing: less memory for more computation.

Lightning's is an option of its FSDP strategies alone; torch's ``checkpoint_wrapper`` updates
statistics of batch norms twice.
"""

from types import MethodType
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from litlab.errors import UserError
from litlab.nn.selection import find_blocks, select_modules
from litlab.util.text import some


class ActivationCheckpointing(Callback):
    """Let chosen blocks keep only their inputs in the forward pass, and compute the rest again in
    the backward pass.

    Activations then take only the memory of the blocks' inputs and of one block. If all blocks are
    chosen, this costs about a third more computation (Chen et al. 2016, arXiv:1604.06174). Losses,
    gradients, batch norm statistics and names in checkpoints are the same as without it. It affects
    only ``fit``, uses ``torch.utils.checkpoint`` with ``use_reentrant=False``, and works in a
    compiled network, too.

    Args:
        blocks: Patterns of the names of modules, dotted from the LightningModule, such as
            ``network.layer*``; see `litlab.nn.selection`. By default, the blocks of ``network``
            that have submodules.

    Raises:
        UserError: At the start of a fit, if there are no such blocks.
    """

    part_of_step = True

    def __init__(self, blocks: str | list[str] | None = None) -> None:
        self.blocks = blocks
        self._changed: list[nn.Module] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage != "fit":
            return
        if self.blocks is None:
            blocks = find_blocks(getattr(pl_module, "network", pl_module))
            blocks = {
                name: block for name, block in blocks.items() if any(True for _ in block.children())
            }
        else:
            blocks = select_modules(pl_module, self.blocks, "activation_checkpointing.blocks")
        if not blocks:
            raise UserError(
                "activation_checkpointing.blocks: model.network has no blocks (modules with "
                "submodules in a Sequential or ModuleList); name modules, or set "
                "activation_checkpointing to null"
            )
        self._changed = list(blocks.values())
        for block in self._changed:
            checkpoint_activations(block)
        rank_zero_info(
            f"activation_checkpointing: computed again in the backward pass: {some(list(blocks))}"
        )

    def teardown(self, *_: Any, **__: Any) -> None:
        """Leave the module as it was found."""
        for block in self._changed:
            del block.forward
        self._changed = []

    on_exception = teardown


def checkpoint_activations(block: nn.Module) -> None:
    """Let a block keep its inputs alone, and run its forward pass again when the backward pass gets
    there.

    The result is the same in every bit: random numbers are drawn again from the same state, and
    buffers, such as the statistics of batch norms, are updated by the first run only. The block is
    changed in place, so that the names of its parameters and their hooks stay as they are; copies
    of it work by themselves. ``del block.forward`` takes it back.

    Args:
        block: Its ``forward`` must not change anything but buffers, nor draw from Python's or
            numpy's generators.
    """
    block.forward = MethodType(_forward, block)


class OwnForward(nn.Module):
    """Calls the forward pass that the class of a block has, whatever its ``forward`` is now."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return type(self.block).forward(self.block, *args, **kwargs)


def _forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    # The compiler sees to it by itself that buffers are updated once, and makes no modules
    if torch.compiler.is_compiling() and torch.is_grad_enabled():
        own = type(self).forward
        return checkpoint(own, self, *args, use_reentrant=False, **kwargs)

    block = OwnForward(self)
    if not torch.is_grad_enabled():
        return block(*args, **kwargs)
    buffers = {name: buffer.clone() for name, buffer in block.named_buffers()}
    is_first = True

    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_first
        if is_first:
            is_first = False
            return block(*args, **kwargs)
        # With the buffers that the first run began with; it has updated those of the block.
        copies = {name: buffer.clone() for name, buffer in buffers.items()}
        return functional_call(block, copies, args, kwargs)

    return checkpoint(run, *args, use_reentrant=False, **kwargs)

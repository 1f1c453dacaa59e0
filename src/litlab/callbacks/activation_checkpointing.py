"""Activation checkpointing: less memory for more computation."""

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import nn

from litlab.errors import UserError
from litlab.nn.activation_checkpointing import checkpoint_activations, keep_activations
from litlab.nn.selection import find_blocks, select_modules
from litlab.optim.parameters import member_networks
from litlab.types import PositiveInt
from litlab.util.text import some


class ActivationCheckpointing(Callback):
    """Let chosen blocks keep only their inputs in the forward pass, and compute the rest again in the backward pass.

    Memory for activations is that of the blocks' inputs and of one block, for about a third more computation if all
    blocks are chosen (Chen et al. 2016, arXiv:1604.06174). Losses, gradients, statistics of batch norms and names in
    checkpoints are those of a fit without it. It acts on ``fit`` alone, by ``torch.utils.checkpoint`` with
    ``use_reentrant=False``, and within a compiled network too.

    Args:
        blocks: Patterns of the names of modules, dotted from the LightningModule, such as ``network.layer*``; ``*``
            stands for anything, dots included, and of modules within each other the outer one counts. A ModuleList
            stands for the modules in it. Left out, the blocks of ``network`` (of the model, if it has none) that have
            parts of their own; see `litlab.nn.selection.find_blocks`.
        every: Every how many of these blocks are recomputed: 2 for every second one, starting with the first.

    Raises:
        UserError: At the start of a fit, if there are no such blocks.
    """

    def __init__(self, blocks: str | list[str] | None = None, every: PositiveInt = 1) -> None:
        self.blocks = [blocks] if isinstance(blocks, str) else blocks
        self.every = every
        self._changed: list[nn.Module] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Change the blocks, and say which."""
        if stage != "fit":
            return
        if self.blocks is None:
            found = _find_blocks(pl_module)
        else:
            found = select_modules(pl_module, self.blocks, "activation_checkpointing.blocks")
        chosen = dict(list(found.items())[:: self.every])
        if own := [name for name, block in chosen.items() if "forward" in vars(block)]:
            raise UserError(
                f"activation_checkpointing.blocks: the forward of {own[0]} has been replaced, which would be lost; "
                "leave that block out"
            )
        for block in chosen.values():
            checkpoint_activations(block)
        self._changed = list(chosen.values())
        rank_zero_info(
            f"activation_checkpointing: {len(chosen)} of {len(found)} blocks are computed again in the backward pass: "
            f"{some(list(chosen))}"
        )

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the module as it was found."""
        self._restore()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Do so after a fit that failed, too."""
        self._restore()

    def _restore(self) -> None:
        for block in self._changed:
            keep_activations(block)
        self._changed = []


def _find_blocks(module: LightningModule) -> dict[str, nn.Module]:
    """Return the blocks with parts of their own of a module's network; of an ensemble, those of its members."""
    network = getattr(module, "network", None)
    whole = {"network": network} if isinstance(network, nn.Module) else {"": module}
    blocks = {}
    for name, part in (member_networks(module) or whole).items():
        for path, block in find_blocks(part).items():
            if any(True for _ in block.children()):
                blocks[f"{name}.{path}".lstrip(".")] = block
    if not blocks:
        raise UserError(
            f"activation_checkpointing.blocks: model.network ({type(network or module).__name__}) has no blocks "
            "to choose (modules with parts of their own in a Sequential or ModuleList); name some, or set "
            "activation_checkpointing to null"
        )
    return blocks

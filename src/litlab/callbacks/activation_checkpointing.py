"""Activation checkpointing: less memory for more computation."""

from collections.abc import Iterator
from itertools import chain

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import nn
from torchmetrics import Metric, MetricCollection

from litlab.callbacks.chosen_modules import called_modules, matching_modules
from litlab.errors import UserError
from litlab.nn.activation_checkpointing import checkpoint_activations, keep_activations
from litlab.optim.parameters import member_networks
from litlab.types import PositiveInt
from litlab.util.text import some

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


class ActivationCheckpointing(Callback):
    """Let chosen blocks keep only their inputs in the forward pass, and compute the rest again in the backward pass.

    Memory for activations is that of the blocks' inputs and of one block, for about a third more computation if all
    blocks are chosen (Chen et al. 2016, arXiv:1604.06174). Losses, gradients, statistics of batch norms and names in
    checkpoints are those of a fit without it. It acts on ``fit`` alone, by ``torch.utils.checkpoint`` with
    ``use_reentrant=False``, and within a compiled network too.

    Args:
        blocks: Patterns of the names of modules, dotted from the LightningModule, such as ``network.layer*``; ``*``
            stands for anything, dots included, and of modules within each other the outer one counts. A ModuleList
            stands for the modules in it. Left out, the blocks of ``network`` (of the model, if it has none): the
            modules with parts of their own in its Sequentials and ModuleLists, and its recurrent layers.
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
            found = _blocks(pl_module)
        else:
            found = called_modules(matching_modules(pl_module, self.blocks, "activation_checkpointing.blocks"))
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


def _blocks(module: LightningModule) -> dict[str, nn.Module]:
    """Return the blocks of a module's network, by their names."""
    network = getattr(module, "network", None)
    whole = {"network": network} if isinstance(network, nn.Module) else {"": module}
    networks = member_networks(module) or whole
    found = dict(chain.from_iterable(_parts(one, name) for name, one in networks.items()))
    if not found:
        raise UserError(
            f"activation_checkpointing.blocks: model.network ({type(network or module).__name__}) has no blocks "
            "to choose (modules with parts of their own in a Sequential or ModuleList, recurrent layers); name some, "
            "or set activation_checkpointing to null"
        )
    return found


def _parts(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    for key, child in module.named_children():
        path = f"{name}.{key}" if name else key
        if isinstance(child, Metric | MetricCollection):
            continue
        is_block = type(module) in CONTAINERS and type(child) not in CONTAINERS and any(True for _ in child.children())
        if is_block or isinstance(child, nn.RNNBase):
            yield path, child
        else:
            yield from _parts(child, path)

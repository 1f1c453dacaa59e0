"""Train a part of the network first, and the rest of it later or not at all.

Lightning's ``BackboneFinetuning`` adds a group to the optimizer in the middle of the run, which some schedules can't
take, and under DDP the ranks don't share the gradients of what it has unfrozen.
"""

import math
from dataclasses import dataclass

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import rank_zero_info
from torch.nn.parallel import DistributedDataParallel

from litlab.errors import UserError
from litlab.nn.selection import matches, select_parameters
from litlab.optim.parameters import summarise
from litlab.parallel.groups import shards
from litlab.types import NonNegativeInt


@dataclass
class FreezeRule:
    """How long the parameters whose names match are frozen.

    Args:
        params: Pattern of names, or several, as `fit --check` lists them; see `litlab.nn.selection`.
        epochs: Number of epochs at the start of the training in which they are frozen. 0: none. null: all.
    """

    params: str | list[str]
    epochs: NonNegativeInt | None = None


class Freeze(Callback):
    """Keep parameters as they are until an epoch.

    What is frozen depends on the epoch alone, so a run that is resumed in any phase continues exactly. Batch norms in
    frozen parts neither train nor update their statistics. The optimizer has the parameters that are trained later from
    the start, and passes over them while they have no gradient; so its groups and its schedule stay as they are.

    Args:
        rules: The first one that matches a parameter counts. What none matches is trained.

    Raises:
        UserError: At the start of a fit, if a pattern matches nothing, or nothing would be trained.
    """

    part_of_step = True

    def __init__(self, rules: list[FreezeRule]) -> None:
        self.rules = rules
        self._starts: dict[str, float] = {}  # by parameter: the first epoch that trains it; infinity: none does

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Freeze what is never trained before a strategy or an optimizer looks at it."""
        if stage != "fit":
            return
        for number, rule in enumerate(self.rules):
            select_parameters(pl_module, rule.params, f"freeze.rules[{number}]")  # refuses what matches nothing
        trained = {name: parameter for name, parameter in pl_module.named_parameters() if parameter.requires_grad}
        self._starts = {name: self._find_start(name) for name in trained}
        if 0 not in self._starts.values():
            raise UserError("freeze.rules: the first epoch trains nothing; set epochs: 0 for a part of the network")
        if shards(trainer.strategy) and not {0, math.inf}.issuperset(self._starts.values()):
            raise UserError(
                f"freeze.rules: {type(trainer.strategy).__name__} can't unfreeze parameters; use ddp or one device, or "
                "set epochs to null"
            )
        for name, parameter in trained.items():
            parameter.requires_grad_(self._starts[name] < math.inf)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Do as at the start of an epoch: a run that is resumed in the middle of one has none."""
        self.on_train_epoch_start(trainer, pl_module)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        thawed = self._train_from(trainer, pl_module, trainer.current_epoch)
        if thawed:
            rank_zero_info(f"Epoch {trainer.current_epoch + 1}: {summarise(thawed)} are trained from here on.")

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the module as it was found."""
        if stage == "fit":
            self._train_from(trainer, pl_module, math.inf)

    def _find_start(self, name: str) -> float:
        for rule in self.rules:
            if matches(name, rule.params):
                return math.inf if rule.epochs is None else rule.epochs
        return 0

    def _train_from(self, trainer: Trainer, module: LightningModule, epoch: float) -> list[str]:
        """Freeze and unfreeze parameters and statistics; return the names of the parameters that are unfrozen."""
        trained = {name: p for name, p in module.named_parameters() if name in self._starts}
        changed = {name: p for name, p in trained.items() if p.requires_grad != (epoch >= self._starts[name])}
        for parameter in changed.values():
            parameter.requires_grad_(not parameter.requires_grad)
        for name, part in module.named_modules():
            start = self._find_start(f"{name}.running_mean")
            if start > 0 and getattr(part, "running_mean", None) is not None:
                part.train(epoch >= start)

        # DDP shares the gradients of the parameters that were trained when it was made.
        strategy = trainer.strategy
        if changed and isinstance(strategy, DDPStrategy) and isinstance(strategy.model, DistributedDataParallel):
            strategy.model = module
            strategy.configure_ddp()
        return [name for name, parameter in changed.items() if parameter.requires_grad]

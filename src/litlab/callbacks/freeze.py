"""Train a part of the network first, and the rest of it later or not at all."""

import math
import warnings
from dataclasses import dataclass

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.utilities import rank_zero_info
from torch import nn

from litlab.errors import UserError
from litlab.nn.selection import matches, select_parameters
from litlab.optim.parameters import summarise
from litlab.parallel.groups import shards
from litlab.types import NonNegativeInt


@dataclass
class FreezeRule:
    """How long the parameters whose names match are frozen.

    Args:
        params: Pattern of names, or several, as `fit --check` lists them. ``*`` stands for anything; the name of a
            module, such as network.layer4, for all parameters in it.
        epochs: Number of epochs at the start of the training in which they are frozen. 0: none. null: all.
    """

    params: str | list[str]
    epochs: NonNegativeInt | None = None


class Freeze(Callback):
    """Keep parameters as they are until an epoch.

    What is frozen depends on the epoch alone, so a run that is resumed in any phase continues exactly. Batch norms in
    frozen parts neither train nor update their statistics. The optimizer has the parameters that are trained later from
    the start, and passes over them while they have no gradient; so its groups and its schedule stay as they are.
    Lightning's ``BackboneFinetuning`` adds a group in the middle of the run instead, which some schedules can't
    take, and under DDP the ranks don't share the gradients of what it has unfrozen.

    Args:
        rules: The first one that matches a parameter counts. What none matches is trained.

    Raises:
        UserError: At the start of a fit, if a pattern matches nothing, or nothing would be trained.
    """

    def __init__(self, rules: list[FreezeRule]) -> None:
        self.rules = [rule if isinstance(rule, FreezeRule) else FreezeRule(**rule) for rule in rules]
        self.until: dict[str, float] = {}  # by parameter: the first epoch that trains it; infinity: none does
        self._norms: list[tuple[nn.Module, float]] = []  # with statistics; the same
        self._frozen: set[str] = set()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Find the parameters, and freeze them before a strategy looks at them."""
        if stage != "fit":
            return
        parameters = dict(pl_module.named_parameters())
        rules = [(rule, math.inf if rule.epochs is None else rule.epochs) for rule in self.rules]
        rule_of = {}
        for number, rule in reversed(list(enumerate(self.rules))):  # the first one that matches is written last
            selected = select_parameters(pl_module, rule.params, f"freeze.rules[{number}]")
            rule_of |= dict.fromkeys(selected, number)
        trained = {name for name, parameter in parameters.items() if parameter.requires_grad}
        self.until = {name: rules[rule][1] for name, rule in rule_of.items() if name in trained}
        if trained == {name for name, end in self.until.items() if end > 0}:
            raise UserError("freeze.rules: the first epoch trains nothing; set epochs: 0 for a part of the network")
        later = frozenset(name for name, end in self.until.items() if 0 < end < math.inf)
        if later and shards(trainer.strategy):
            raise UserError(
                f"freeze.rules: {type(trainer.strategy).__name__} can't unfreeze parameters; use ddp or one device, or "
                "set epochs to null"
            )
        pl_module.frozen_for_now = later  # pyright: ignore[reportArgumentType]
        self._norms = [
            (module, next((end for rule, end in rules if matches(f"{name}.running_mean", rule.params)), 0))
            for name, module in pl_module.named_modules()
            if getattr(module, "running_mean", None) is not None
        ]
        self._frozen = set()
        warnings.filterwarnings("ignore", r"Found \d+ module\(s\) in eval mode at the start")  # meant to be
        self.apply(trainer, pl_module, 0)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse an optimizer that leaves out what is to be trained later."""
        known = {id(p) for optimizer in trainer.optimizers for group in optimizer.param_groups for p in group["params"]}
        named = pl_module.named_parameters()
        missing = [name for name, p in named if 0 < self.until.get(name, 0) < math.inf and id(p) not in known]
        if missing:
            raise UserError(
                f"freeze.rules: the optimizer does not have {summarise(missing)}, which would be trained later; let "
                "configure_optimizers pass frozen parameters too"
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Freeze what is frozen in the epoch that a resumed run continues."""
        self.apply(trainer, pl_module, trainer.current_epoch)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Unfreeze what is trained from this epoch on."""
        if thawed := self.apply(trainer, pl_module, trainer.current_epoch):
            rank_zero_info(f"Epoch {trainer.current_epoch + 1}: {summarise(thawed)} are trained from here on.")

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the module as it was found."""
        if stage == "fit" and self.until:
            self.apply(trainer, pl_module, math.inf)

    def apply(self, trainer: Trainer, pl_module: LightningModule, epoch: float) -> list[str]:
        """Freeze what is frozen in an epoch, counted from 0, and nothing else; return what was and is not any more."""
        frozen = {name for name, end in self.until.items() if epoch < end}
        for norm, end in self._norms:
            if end > 0:
                norm.train(epoch >= end)
        if frozen == self._frozen:
            return []
        for name, parameter in pl_module.named_parameters():
            if name in self.until:
                parameter.requires_grad_(name not in frozen)
        thawed = [name for name in self.until if name in self._frozen - frozen]
        self._frozen = frozen
        strategy = trainer.strategy
        if isinstance(strategy, DDPStrategy) and isinstance(strategy.model, nn.parallel.DistributedDataParallel):
            # It shares the gradients of the parameters that were trained when it was made.
            strategy.model = pl_module
            strategy.configure_ddp()
        return thawed

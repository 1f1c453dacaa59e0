"""Train a part of the network first, and the rest of it later or not at all.

Lightning's ``BackboneFinetuning`` adds a group to the optimizer in the middle of the run, which
some schedules can't take, and under DDP the ranks don't share the gradients of what it has
unfrozen.
"""

import math
from dataclasses import dataclass
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch.nn.parallel import DistributedDataParallel

from litlab.errors import UserError
from litlab.nn.selection import select_parameters
from litlab.types import NonNegativeInt
from litlab.util.ranks import divides_model


@dataclass
class FreezeRule:
    """How long parameters with matching names are frozen.

    Args:
        params: Pattern of names, or several, as `fit --check` lists them; see
            `litlab.nn.selection`.
        epochs: Number of epochs at the start of training in which they are frozen. 0: none. null:
            all.
    """

    params: str | list[str]
    epochs: NonNegativeInt | None = None


class Freeze(Callback):
    """Keep parameters as they are until an epoch.

    What is frozen depends only on the epoch, so a run that is resumed in any phase continues
    exactly. Batch norms in frozen parts neither train nor update their statistics. From the start,
    the optimizer also has the parameters that are trained later; it skips them while they have no
    gradient, so its groups and schedule never change.

    Args:
        rules: The first rule that matches a parameter applies. Parameters without a matching rule
            are trained.

    Raises:
        UserError: At the start of a fit, if a pattern matches nothing, or nothing is left to train.
    """

    part_of_step = True

    def __init__(self, rules: list[FreezeRule]) -> None:
        self.rules = rules
        # By parameter: the first epoch that trains it; infinity: none does
        self._starts: dict[Any, float] = {}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Freeze what is never trained before a strategy or an optimizer looks at it."""
        if stage != "fit":
            return
        self._starts = {
            parameter: 0.0 for parameter in pl_module.parameters() if parameter.requires_grad
        }
        # The first one that matches is written last
        for number, rule in reversed(list(enumerate(self.rules))):
            start = math.inf if rule.epochs is None else rule.epochs
            selected = select_parameters(pl_module, rule.params, f"freeze.rules[{number}]").values()
            self._starts |= dict.fromkeys(self._starts.keys() & selected, start)

        first = min(self._starts.values(), default=0.0)
        if first > 0:
            until = "for good" if math.isinf(first) else "in the first epoch"
            raise UserError(
                f"freeze.rules: they freeze all parameters {until}; put a rule with epochs: 0 for "
                "some of them first"
            )
        if divides_model(trainer.strategy) and not {0, math.inf}.issuperset(self._starts.values()):
            raise UserError(
                "freeze.rules: trainer.strategy shards parameters, which can't be unfrozen; use "
                "ddp or one device, or set epochs to null"
            )
        for parameter, start in self._starts.items():
            parameter.requires_grad_(start < math.inf)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        is_changed = self._train_from(pl_module, trainer.current_epoch)
        # DDP shares the gradients of the parameters that were trained when it was made.
        strategy = trainer.strategy
        if (
            is_changed
            and isinstance(strategy, DDPStrategy)
            and isinstance(strategy.model, DistributedDataParallel)
        ):
            strategy.model = pl_module
            strategy.configure_ddp()

    # A run that is resumed in the middle of an epoch has no start of it
    on_train_start = on_train_epoch_start

    def teardown(self, trainer: Trainer, pl_module: LightningModule, *_: Any, **__: Any) -> None:
        """Leave the module as it was found."""
        self._train_from(pl_module, math.inf)

    on_exception = teardown

    def _train_from(self, module: LightningModule, epoch: float) -> bool:
        """Freeze and unfreeze parameters and statistics; return whether parameters have changed."""
        changed = [p for p, start in self._starts.items() if p.requires_grad != (epoch >= start)]
        for parameter in changed:
            parameter.requires_grad_(not parameter.requires_grad)
        for part in module.modules():
            start = self._starts.get(getattr(part, "weight", None), 0)  # pyright: ignore[reportArgumentType]
            if start > 0 and getattr(part, "running_mean", None) is not None:
                part.train(epoch >= start)
        return bool(changed)

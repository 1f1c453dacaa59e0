"""The optimizer of a resumed run: which saved state belongs to which parameter, and settings that have changed."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import BaseFinetuning

from litlab.errors import UserError
from litlab.tasks.base import ExperimentModule

Names = list[list[str]]  # of the parameters in each group of an optimizer
ADVICE = "leave it as it was, or start a new run from its weights with --init_from"


def group_names(trainer: Trainer, module: LightningModule) -> list[Names]:
    """Return the names of the parameters of each optimizer, by its groups, in their order."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    return [
        [[names.get(id(parameter), "") for parameter in group["params"]] for group in optimizer.param_groups]
        for optimizer in trainer.optimizers
    ]


def match_names(trainer: Trainer, module: LightningModule, checkpoint: dict[str, Any], saved: list[Names]) -> None:
    """Order the saved state of each optimizer by the names of the parameters: torch goes by their position.

    Args:
        trainer: The trainer. Its optimizers exist and are not restored yet.
        module: The module whose parameters they train.
        checkpoint: The checkpoint, changed in place.
        saved: The names that its states belong to; empty for a checkpoint of plain Lightning, which keeps none. Its
            states stay in their order.

    Raises:
        UserError: If a parameter is trained that was not, or the other way round, or is in another group.
    """
    if not trainer.strategy.lightning_restore_optimizer:
        return  # these save states by name
    if any(isinstance(callback, BaseFinetuning) for callback in trainer.callbacks):  # pyright: ignore[reportAttributeAccessIssue]
        return  # it has added groups, and restores them by name itself
    states = checkpoint["optimizer_states"]
    for number, (now, state) in enumerate(zip(group_names(trainer, module), states, strict=True)):
        groups = state["param_groups"]
        if not saved:
            _check_sizes([len(group) for group in now], [len(group["params"]) for group in groups])
            continue
        _check_names(now, saved[number])
        for names, names_then, group in zip(now, saved[number], groups, strict=True):
            number_of = dict(zip(names_then, group["params"], strict=True))
            group["params"] = [number_of[name] for name in names]


def _check_sizes(now: list[int], then: list[int]) -> None:
    if now != then:
        raise UserError(
            f"model.optimizer: it trains {sum(now)} parameters in {len(now)} groups, in the checkpoint {sum(then)} in "
            f"{len(then)}; {ADVICE}."
        )


def _check_names(now: Names, then: Names) -> None:
    here, there = ({name for group in names for name in group} for names in (now, then))
    for names, what in (
        (there - here, "was trained in the run and is not trained here"),
        (here - there, "is trained here and was not trained in the run"),
    ):
        if names:
            more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise UserError(f"model: {min(names)}{more} {what}; {ADVICE}.")
    moved = [name for new, old in zip(now, then, strict=False) for name in new if name not in old]
    if moved or len(now) != len(then):
        raise UserError(
            f"model.optimizer: {(moved or now[-1])[0]} is in another parameter group than before; {ADVICE}."
        )


class OptimizerChanges(Callback):
    """Apply changed settings of the optimizer to the state that a checkpoint has saved of it.

    torch's ``load_state_dict`` restores learning rate, weight decay and all other settings as they were. Momentum and
    step counts stay as saved. A new learning rate scales what the schedule had made of the old one.
    """

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Change the saved state before it is restored."""
        recipe: Any = getattr(pl_module, "optimizer", None)
        if trainer.state.fn != "fit" or not callable(recipe):
            return
        fresh: Any = (
            pl_module.new_optimizer()
            if isinstance(pl_module, ExperimentModule)
            else recipe([parameter for parameter in pl_module.parameters() if parameter.requires_grad])
        )
        now, then = fresh.param_groups, checkpoint["optimizer_states"][0]["param_groups"]
        if len(now) != len(then):
            raise UserError(
                f"model.optimizer: it has {len(now)} parameter groups, in the checkpoint {len(then)}; {ADVICE}."
            )
        schedules = [state for state in checkpoint.get("lr_schedulers") or [] if "base_lrs" in state]
        for number, (new, old) in enumerate(zip(now, then, strict=True)):
            initial = old.get("initial_lr", old["lr"])  # without a schedule that notes it, the rate as it is
            if new["lr"] != initial:
                old["lr"] *= new["lr"] / initial
                for schedule in schedules:
                    schedule["base_lrs"][number] = new["lr"]
                if "initial_lr" in old:
                    old["initial_lr"] = new["lr"]
            old.update({name: value for name, value in new.items() if name not in ("params", "lr", "initial_lr")})

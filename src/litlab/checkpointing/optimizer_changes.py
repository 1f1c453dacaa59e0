"""The optimizer of a run that goes on: whose state is whose, and new settings, which the saved state would undo."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import BaseFinetuning
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy

from litlab.errors import UserError

Names = list[list[str]]  # of the parameters in each group of an optimizer


def group_names(trainer: Trainer, module: LightningModule) -> list[Names]:
    """The names of the parameters of each optimizer, by its groups, in their order."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    return [
        [[names.get(id(parameter), "") for parameter in group["params"]] for group in optimizer.param_groups]
        for optimizer in trainer.optimizers
    ]


def match_names(trainer: Trainer, module: LightningModule, checkpoint: dict[str, Any], saved: list[Names]) -> None:
    """Orders the saved state of each optimizer by the names of the parameters: torch goes by their position.

    Args:
        trainer: Its optimizers are there, and not restored yet.
        module: Whose parameters they train.
        checkpoint: Changed in place.
        saved: The names that the checkpoint's states belong to. Empty if it has none, as those of older versions: then
            the order of its weights tells.

    Raises:
        UserError: If a parameter is trained that was not, or the other way round, or is in another group.
    """
    if not isinstance(trainer.strategy, SingleDeviceStrategy | DDPStrategy):
        return  # others save states by name
    if any(isinstance(callback, BaseFinetuning) for callback in trainer.callbacks):  # pyright: ignore[reportAttributeAccessIssue]
        return  # it has added groups, and puts them back by name itself
    for number, (now, state) in enumerate(
        zip(group_names(trainer, module), checkpoint["optimizer_states"], strict=True)
    ):
        then = saved[number] if saved else _by_weights(module, checkpoint, now)
        numbers = [group["params"] for group in state["param_groups"]]
        if [len(group) for group in then] != [len(group) for group in numbers]:
            then = []  # no way to tell
        _check_names(now, then, numbers)
        for names, names_then, group in zip(now, then, state["param_groups"], strict=True):
            number_of = dict(zip(names_then, group["params"], strict=True))
            group["params"] = [number_of[name] for name in names]


def _by_weights(module: LightningModule, checkpoint: dict[str, Any], now: Names) -> Names:
    """The names of an older checkpoint, if the groups have the model's order here: they then had it there, too."""
    here = {name: place for place, (name, _) in enumerate(module.named_parameters())}
    there = {name: place for place, name in enumerate(checkpoint["state_dict"])}
    if not here.keys() <= there.keys() or any(group != sorted(group, key=here.__getitem__) for group in now):
        return now
    return [sorted(group, key=there.__getitem__) for group in now]


def _check_names(now: Names, then: Names, numbers: list[list[int]]) -> None:
    """Refuses groups of other parameters."""
    here, there = ({name for group in names for name in group} for names in (now, then))
    advice = "leave it as it was, or begin a new run from its weights with --init_from"
    if not then:
        raise UserError(
            f"the checkpoint has the optimizer's state of {sum(map(len, numbers))} parameters in {len(numbers)} "
            f"groups, here it has {sum(map(len, now))} in {len(now)}: {advice}."
        )
    for names, what in (
        (there - here, "was trained and is not trained here"),
        (here - there, "is trained, and was not"),
    ):
        if names:
            first, more = min(names), f" (and {len(names) - 1} more)" if len(names) > 1 else ""
            raise UserError(f"{first}{more} {what}: {advice}.")
    moved = [name for new, old in zip(now, then, strict=False) for name in new if name not in old]
    if moved or len(now) != len(then):
        raise UserError(f"{(moved or now[-1])[0]} is in another group of the optimizer than before: {advice}.")


class OptimizerChanges(Callback):
    """Put the settings of the optimizer as it is configured now into the state that a checkpoint has saved of it.

    torch's ``load_state_dict`` brings back learning rate, weight decay and all else as it was. Momentum and step counts
    stay as saved. A new learning rate scales what the schedule had made of the old one.
    """

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Change the saved state before it is restored."""
        recipe: Any = getattr(pl_module, "optimizer", None)
        if trainer.state.fn != "fit" or not callable(recipe):
            return
        fresh: Any = recipe([parameter for parameter in pl_module.parameters() if parameter.requires_grad])
        now = fresh.param_groups
        then = checkpoint["optimizer_states"][0]["param_groups"]
        if len(now) != len(then):
            raise UserError(
                f"model.optimizer makes {len(now)} groups of parameters, the checkpoint has {len(then)}: leave its "
                "settings as they were, or begin a new run with --init_from."
            )
        schedules = checkpoint.get("lr_schedulers") or []
        for number, (new, old) in enumerate(zip(now, then, strict=True)):
            began_with = old.get("initial_lr", old["lr"])  # without a schedule that notes it, as it is
            if new["lr"] != began_with:
                old["lr"] = old["lr"] * new["lr"] / began_with
                for schedule in schedules:
                    if "base_lrs" in schedule:
                        schedule["base_lrs"][number] = new["lr"]
                if "initial_lr" in old:
                    old["initial_lr"] = new["lr"]
            old.update({name: value for name, value in new.items() if name not in ("params", "lr", "initial_lr")})

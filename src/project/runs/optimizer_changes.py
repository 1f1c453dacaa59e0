"""New settings of the optimizer for a run that goes on: its saved state would undo them."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from project.errors import UserError


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

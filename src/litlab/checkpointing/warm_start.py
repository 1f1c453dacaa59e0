"""``fit --init_from``: start from the weights of another run."""

from pathlib import Path

from lightning.pytorch.utilities import rank_zero_info
from torch import nn

from litlab.checkpointing.load import check_finite, load_checkpoint
from litlab.errors import UserError
from litlab.util.text import some


def initialise(model: nn.Module, path: Path) -> None:
    """Copy those weights of a checkpoint into a model that have the same name and shape, and report which.

    Nothing else is copied: neither settings, nor the optimizer's state, nor the progress.

    Args:
        model: The model, as its config describes it.
        path: The checkpoint.

    Raises:
        UserError: If the file can't be used, or nothing in it matches.
    """
    checkpoint = load_checkpoint(path)
    check_finite(model, checkpoint)
    there, here = checkpoint["state_dict"], model.state_dict()
    matching = [name for name in here if name in there and here[name].shape == there[name].shape]
    parameters = {name: parameter.numel() for name, parameter in model.named_parameters()}
    copied = [name for name in matching if name in parameters]
    if not copied:
        raise UserError(
            f"init_from: none of the {len(there)} tensors of {path} has the name and shape of one of the model's "
            f"({some(list(there))} against {some(list(here))}); give a run of this kind of model."
        )
    model.load_state_dict({name: there[name] for name in matching}, strict=False)
    rank_zero_info(
        f"Weights of {path}: {len(matching)} of the model's {len(here)} tensors match "
        f"({sum(parameters[name] for name in copied):,} of {sum(parameters.values()):,} parameters)."
    )
    for what, names in {
        "Another shape there, so left as initialised": [n for n in here if n in there and n not in matching],
        "Not there, so left as initialised": [n for n in here if n not in there],
        "Only there, so left out": [n for n in there if n not in here],
    }.items():
        if names:
            rank_zero_info(f"{what}: {some(names)}.")

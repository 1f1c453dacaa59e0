"""``fit --init_from``: the weights of another run to begin with."""

from pathlib import Path

from lightning.pytorch.utilities import rank_zero_info
from torch import nn

from litlab.checkpointing.load import check_finite, load_checkpoint
from litlab.errors import UserError
from litlab.util.commands import some


def initialise(model: nn.Module, path: Path) -> None:
    """Copies those weights of a checkpoint into a model that have the same name and shape, and reports which.

    Nothing else is taken over: neither settings, nor the optimizer's state, nor the progress.

    Args:
        model: The model, as its config describes it.
        path: The checkpoint.

    Raises:
        UserError: If the file can't be used, or nothing in it matches.
    """
    checkpoint = load_checkpoint(str(path))
    check_finite(model, checkpoint)
    there = checkpoint["state_dict"]
    here = model.state_dict()
    matching = {name for name in here if name in there and here[name].shape == there[name].shape}
    parameters = {name: parameter.numel() for name, parameter in model.named_parameters()}
    if not matching & set(parameters):
        raise UserError(
            f"--init_from {path}: none of its {len(there)} tensors has the name and shape of one of the model's "
            f"({some(list(there))} against {some(list(here))})."
        )
    model.load_state_dict({name: there[name] for name in matching}, strict=False)
    taken = sum(size for name, size in parameters.items() if name in matching)
    rank_zero_info(
        f"Weights of {path}: {len(matching)} of the model's {len(here)} tensors match "
        f"({taken:,} of {sum(parameters.values()):,} parameters)."
    )
    for what, names in {
        "Another shape there, so left as initialised": [
            name for name in here if name in there and name not in matching
        ],
        "Not there, so left as initialised": [name for name in here if name not in there],
        "Only there, so left out": [name for name in there if name not in here],
    }.items():
        if names:
            rank_zero_info(f"{what}: {some(names)}.")

"""Weights of a checkpoint: whether they fit a model, and ``fit --init_from``."""

import re
from collections.abc import Container
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn

from litlab.checkpointing.io import load_checkpoint, read_checkpoint
from litlab.errors import UserError
from litlab.util.text import some


def check_weights(model: nn.Module, checkpoint: dict[str, Any]) -> None:
    """Refuse a model that the weights of a checkpoint don't fit, before more is built.

    Raises:
        UserError: If a parameter is missing, left over, or of another shape.
    """
    here = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    there = {name: tuple(tensor.shape) for name, tensor in checkpoint["state_dict"].items()}
    for name in {**here, **there}:
        if here.get(name) != there.get(name):
            raise UserError(
                f"model: the checkpoint's weights don't fit it: {name} is {here.get(name, 'missing')}, in the "
                f"checkpoint {there.get(name, 'missing')}; leave the settings of the model as they were"
            )


def initialise(model: nn.Module, path: Path) -> None:
    """Copy those weights of a checkpoint into a model that have the same name and shape, and report which.

    Nothing else is copied: neither settings, nor the optimizer's state, nor the progress.

    Args:
        model: The model, as its config describes it.
        path: A checkpoint of Lightning, or a file with a bare ``state_dict``.

    Raises:
        UserError: If the file can't be used, or nothing in it matches.
    """
    here = model.state_dict()
    there = read_weights(path, here)
    matching = {name: there[name] for name in here if name in there and here[name].shape == there[name].shape}
    if matching.keys().isdisjoint(dict(model.named_parameters())):
        raise UserError(
            f"init_from: none of the {len(there)} tensors of {path} has the name and shape of one of the model's "
            f"({some(list(there))} against {some(list(here))}); give a run of this kind of model"
        )
    model.load_state_dict(matching, strict=False)
    rank_zero_info(f"Weights of {path}: {len(matching)} of the model's {len(here)} tensors match.")
    fresh = [name for name in here if name not in matching]
    if fresh:
        rank_zero_info(f"Not there, or of another shape, so left as initialised: {some(fresh)}.")


def read_weights(path: Path, known: Container[str]) -> dict[str, Tensor]:
    """Return the weights of a file by name, without what DDP and torch.compile put into names that a model lacks."""
    content = read_checkpoint(path, mmap=True)
    is_bare = isinstance(content, dict) and all(isinstance(value, Tensor) for value in content.values())
    weights = content if is_bare else load_checkpoint(path)["state_dict"]
    return {
        name if name in known else re.sub(r"\b(?:_orig_mod|module)\.", "", name): tensor
        for name, tensor in weights.items()
    }

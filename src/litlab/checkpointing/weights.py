"""Weights of a checkpoint: whether they fit a model, and ``fit --init_from``."""

from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn

from litlab.checkpointing.io import load_checkpoint, read_checkpoint
from litlab.errors import UserError
from litlab.util.commands import some

PREFIXES = ("_orig_mod.", "module.")  # of torch.compile and of DistributedDataParallel


def check_weights(model: nn.Module, checkpoint: dict[str, Any]) -> None:
    """Refuse a model that the weights of a checkpoint don't fit, and weights that are NaN, before more is built.

    Raises:
        UserError: If a parameter is missing, left over, of another shape, or not finite.
    """
    here = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    there = {name: tuple(tensor.shape) for name, tensor in checkpoint["state_dict"].items()}
    names = [name for name in {**here, **there} if here.get(name) != there.get(name)]
    if names:
        shapes = [shape.get(names[0], "missing") for shape in (here, there)]
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        raise UserError(
            f"model: the checkpoint's weights don't fit it as it is described here: {names[0]} is {shapes[0]}, in the "
            f"checkpoint {shapes[1]}{more}; leave the settings of the model as they were"
        )
    check_finite(model, checkpoint["state_dict"])


def check_finite(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Refuse weights that make every output of a model NaN.

    Args:
        model: The model. Its parameters must be finite; buffers may hold infinity (as masks do) but no NaN.
        weights: The weights. Those of shards that were not read are not looked at.

    Raises:
        UserError: If there are such weights.
    """
    parameters = {name for name, _ in model.named_parameters()}
    for name, tensor in weights.items():
        if tensor.is_meta:
            continue
        wrong = ~tensor.isfinite() if name in parameters else tensor.isnan()
        if wrong.any():
            raise UserError(f"checkpoint: it holds NaN or infinity in {name}; use an earlier one")


def initialise(model: nn.Module, path: Path) -> None:
    """Copy those weights of a checkpoint into a model that have the same name and shape, and report which.

    Nothing else is copied: neither settings, nor the optimizer's state, nor the progress.

    Args:
        model: The model, as its config describes it.
        path: A checkpoint of Lightning, or a file with a bare ``state_dict``.

    Raises:
        UserError: If the file can't be used, or nothing in it matches.
    """
    there = _read_weights(path)
    here = model.state_dict()
    matching = [name for name in here if name in there and here[name].shape == there[name].shape]
    parameters = {name: parameter.numel() for name, parameter in model.named_parameters()}
    copied = [name for name in matching if name in parameters]
    if not copied:
        raise UserError(
            f"init_from: none of the {len(there)} tensors of {path} has the name and shape of one of the model's "
            f"({some(list(there))} against {some(list(here))}); give a run of this kind of model"
        )
    check_finite(model, {name: there[name] for name in matching})
    model.load_state_dict({name: there[name] for name in matching}, strict=False)

    rank_zero_info(
        f"Weights of {path}: {len(matching)} of the model's {len(here)} tensors match "
        f"({sum(parameters[name] for name in copied):,} of {sum(parameters.values()):,} parameters)."
    )
    reports = {
        "Another shape there, so left as initialised": [n for n in here if n in there and n not in matching],
        "Not there, so left as initialised": [n for n in here if n not in there],
        "Only there, so left out": [n for n in there if n not in here],
    }
    for text, names in reports.items():
        if names:
            rank_zero_info(f"{text}: {some(names)}.")


def _read_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights of a file by name, without the prefixes that wrappers put before the names."""
    content = read_checkpoint(path, mmap=True)
    is_bare = isinstance(content, dict) and content and all(isinstance(value, Tensor) for value in content.values())
    weights = content if is_bare else load_checkpoint(path)["state_dict"]
    for prefix in PREFIXES:
        plain = {name.replace(prefix, ""): tensor for name, tensor in weights.items()}
        if plain.keys() != weights.keys() and len(plain) == len(weights):
            rank_zero_info(f"init_from: '{prefix}' is left out of the names of the weights.")
            weights = plain
    return weights

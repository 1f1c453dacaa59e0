"""Weights of a checkpoint: whether they fit a model, and ``fit --init_from``."""

import re
from collections.abc import Container
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn

from litlab.checkpointing.io import fill_shards, read_checkpoint
from litlab.errors import UserError
from litlab.util.text import some

# Where training scripts keep weights: Lightning and timm, torchvision and detectron2, PyTorch's
# tutorials, SlowFast. The first of them counts.
KEYS = ("state_dict", "model", "model_state_dict", "model_state")
PREFIXES = r"\b(?:_orig_mod|module)\."  # of torch.compile and DDP


def check_weights(model: nn.Module, checkpoint: dict[str, Any]) -> None:
    """Refuse a model that the weights of a checkpoint don't fit, before more is built.

    Raises:
        UserError: If a parameter is missing, left over, or of another shape.
    """
    # Of a sharded checkpoint the tensors may be empty here: their shapes are right
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    saved = {name: tuple(tensor.shape) for name, tensor in checkpoint["state_dict"].items()}
    for name in {**shapes, **saved}:  # in the order of the model, then what it lacks
        if shapes.get(name) != saved.get(name):
            raise UserError(
                f"model: the checkpoint's weights don't fit it: {name} is "
                f"{shapes.get(name, 'missing')}, in the checkpoint {saved.get(name, 'missing')}; "
                "leave the settings of the model as they were"
            )


def initialise(model: nn.Module, path: Path) -> None:
    """Copy those weights of a checkpoint into a model that have the same name and shape, and report
    which.

    Nothing else is copied: neither settings, nor the optimizer's state, nor the progress.

    Args:
        model: The model, as its config describes it.
        path: A checkpoint of Lightning, or a file with a bare ``state_dict``.

    Raises:
        UserError: If the file can't be used, or nothing in it matches.
    """
    # A last layer for other classes has another shape, and stays as it is
    state = model.state_dict()
    saved = read_weights(path, state)
    matching = {
        name: saved[name]
        for name in state
        if name in saved and state[name].shape == saved[name].shape
    }
    # Buffers alone, such as counters of batch norms, have the same names in many models
    if matching.keys().isdisjoint(dict(model.named_parameters())):
        raise UserError(
            f"init_from: none of the {len(saved)} tensors of {path} has the name and shape of one "
            f"of the model's ({some(list(saved))} against {some(list(state))}); give a run of this "
            "kind of model"
        )
    model.load_state_dict(matching, strict=False)

    # Said in any case: that a layer did not match is easily overlooked
    rank_zero_info(f"Weights of {path}: {len(matching)} of the model's {len(state)} tensors match.")
    fresh = [name for name in state if name not in matching]
    if fresh:
        rank_zero_info(f"Not there, or of another shape, so left as initialised: {some(fresh)}.")


def read_weights(path: Path, names: Container[str]) -> dict[str, Tensor]:
    """Return the weights of a file by the names that a model has.

    Args:
        path: A checkpoint of Lightning, or what ``torch.save`` wrote: a ``state_dict`` of the model
            or of its ``network``, as it is or under a key. Where there are several, the first of
            `KEYS` is used.
        names: The model's names. What DDP and torch.compile put into names is left out where the
            model lacks it.

    Raises:
        UserError: If the file can't be used, or has no weights.
    """
    content = read_checkpoint(path, mmap=True)
    if isinstance(content, dict):
        content = pick_weights(path, fill_shards(path, content, ["state_dict"]))
    if not has_weights(content):
        raise UserError(
            f"init_from: {path} has no weights; give a checkpoint or a file with a state_dict"
        )

    # network.conv.weight in the model may be conv.weight in a file of the network alone, or
    # module.conv.weight where it was trained with DDP
    weights: dict[str, Tensor] = {}
    for name, value in content.items():
        plain = name if name in names else re.sub(PREFIXES, "", name)
        inner = f"network.{plain}"
        is_of_network = plain not in names and inner in names
        if isinstance(value, Tensor):
            weights[inner if is_of_network else plain] = value
    if any(re.search(PREFIXES, name) for name in content.keys() - weights.keys()):
        rank_zero_info(f"{path}: _orig_mod. and module. are left out of the names.")
    return weights


def pick_weights(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """Return what lies under the key with weights, or all of it if there is no such key."""
    keys = [key for key, value in content.items() if has_weights(value)]
    if not keys:
        return content
    # One of the usual keys, else the only one there is
    best = next((key for key in KEYS if key in keys), keys[0])
    if best not in KEYS and len(keys) > 1:
        raise UserError(
            f"init_from: {path} has weights under {some(keys)}; save those that you mean in a file "
            f'of their own: torch.save(torch.load("{path}")["{best}"], "weights.pt")'
        )
    if best != "state_dict" and len(keys) > 1:
        rank_zero_info(f"{path} has weights under {some(keys)}: {best} is taken.")
    return content[best]


def has_weights(content: Any) -> bool:
    """Return whether it is a ``state_dict``: other dictionaries, as of random states, have no
    floats.
    """
    # torch's random states are tensors of bytes
    values = content.values() if isinstance(content, dict) else ()
    return any(isinstance(value, Tensor) and value.is_floating_point() for value in values)

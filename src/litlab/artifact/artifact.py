"""An exported model, ready to be called."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from litlab.artifact.manifest import FILES, read_manifest
from litlab.artifact.runtimes import load_runtime
from litlab.errors import UserError


class Artifact:
    """The model in the folder of an export.

    ``manifest`` says what it takes and gives; ``run`` takes arrays in that order, and checks nothing.

    Args:
        folder: The folder.
        threads: Threads that compute; None for the runtime's choice.

    Raises:
        UserError: It is missing, damaged, or not for this machine's versions.
    """

    def __init__(self, folder: Path, threads: int | None = None) -> None:
        self.folder = folder
        self.manifest = read_manifest(folder)
        form, names = self.manifest["format"], [entry["name"] for entry in self.manifest["inputs"]]
        self.run = load_runtime(form, folder / FILES[form], names, self.manifest["versions"], threads)

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model.

        Args:
            inputs: Arrays by the names, and with the types and shapes, that the manifest says.

        Returns:
            The outputs by their names.

        Raises:
            UserError: An input is missing, unknown, or of another type or shape.
        """
        arrays = checked(self.manifest, inputs)
        names = [entry["name"] for entry in self.manifest["outputs"]]
        return dict(zip(names, self.run(arrays), strict=True))


def checked(manifest: Mapping[str, Any], inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the inputs in the order of a manifest.

    Args:
        manifest: The manifest, for its ``inputs`` and ``limits``.
        inputs: Arrays by name.

    Raises:
        UserError: One is missing, unknown, or of another type or shape.
    """
    wanted = {entry["name"]: entry for entry in manifest["inputs"]}
    for name in inputs:
        if name not in wanted:
            raise UserError(f"input {name!r}: the model has none of that name; it takes {', '.join(wanted)}")
    free: dict[str, int] = {}
    for name, entry in wanted.items():
        if name not in inputs:
            raise UserError(f"input {name!r}: it is missing; give {entry['what']}")
        array, shape = inputs[name], entry["shape"]
        if str(array.dtype) != entry["dtype"]:
            raise UserError(f"input {name!r}: it is {array.dtype}, not {entry['dtype']}; convert it")
        sizes = zip(array.shape, shape, strict=False)
        if array.ndim != len(shape) or any(size != axis for size, axis in sizes if isinstance(axis, int)):
            raise UserError(f"input {name!r}: its shape is {_text(array.shape)}, not {_text(shape)}")
        for size, axis in zip(array.shape, shape, strict=True):
            if isinstance(axis, int):
                continue
            most = manifest.get("limits", {}).get(axis)
            if size < 1 or (most is not None and size > most):
                upto = "at least 1" if most is None else f"from 1 to {most}"
                raise UserError(f"input {name!r}: the axis {axis!r} has size {size}, but it must be {upto}")
            if free.setdefault(axis, size) != size:
                raise UserError(f"input {name!r}: the axis {axis!r} has size {size}, but {free[axis]} in another input")
    return [np.ascontiguousarray(inputs[name]) for name in wanted]


def _text(shape: Any) -> str:
    return f"({', '.join(map(str, shape))})"

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
        arrays = order_inputs(self.manifest, inputs)
        names = [entry["name"] for entry in self.manifest["outputs"]]
        return dict(zip(names, self.run(arrays), strict=True))


def order_inputs(manifest: Mapping[str, Any], inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Return the inputs in the order of a manifest.

    Args:
        manifest: The manifest, for its ``inputs`` and ``limits``.
        inputs: Arrays by name.

    Raises:
        UserError: One is missing, unknown, or of another type or shape.
    """
    names = [entry["name"] for entry in manifest["inputs"]]
    if set(inputs) != set(names):
        raise UserError(f"inputs: they are {', '.join(inputs)}; the model takes {', '.join(names)}")

    sizes: dict[str, int] = {}  # of the free axes, which several inputs share
    for entry in manifest["inputs"]:
        name, array, shape = entry["name"], inputs[entry["name"]], entry["shape"]
        fits = array.ndim == len(shape) and str(array.dtype) == entry["dtype"]
        for size, axis in zip(array.shape, shape, strict=False):
            if isinstance(axis, int):
                fits = fits and size == axis
            else:
                most = manifest["limits"].get(axis, size)
                fits = fits and 1 <= size <= most and sizes.setdefault(axis, size) == size
        if not fits:
            raise UserError(
                f"input {name!r}: it is {array.dtype} of shape {array.shape}; the model takes {entry['dtype']} of "
                f"shape ({', '.join(map(str, shape))}), with the same sizes in all inputs"
            )
    return [np.ascontiguousarray(inputs[name]) for name in names]

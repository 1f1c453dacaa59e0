"""What is known of the data: asked for by models and callbacks, and carried by a checkpoint to read raw files."""

import reprlib
from dataclasses import dataclass
from typing import Any, ClassVar

from litlab.errors import UserError


@dataclass(frozen=True)
class Metadata:
    """What is known of a data set; each kind of data has its own subclass."""

    fixed: ClassVar[tuple[str, ...]] = ()  # what a trained model depends on

    def state_dict(self) -> dict[str, Any]:
        """Return the record as a checkpoint keeps it: plain values by their names."""
        return dict(vars(self))

    def check_same(self, here: Any) -> None:
        """Refuse data that a model with this metadata was not trained for.

        Args:
            here: The `Metadata` of the data.

        Raises:
            UserError: They differ in one of `fixed`.
        """
        for name in self.fixed:
            trained, found = getattr(self, name), getattr(here, name)
            if trained != found:
                mine, theirs = reprlib.repr(trained), reprlib.repr(found)  # of long lists the first parts
                raise UserError(
                    f"data: the checkpoint was trained with {name} {mine}, here it is {theirs}; use data and settings "
                    "like those of its run"
                )


@dataclass(frozen=True)
class ClassMetadata(Metadata):
    """Metadata of samples with one class each.

    Args:
        class_names: Name of each class, in the order of the labels.
    """

    fixed: ClassVar[tuple[str, ...]] = ("class_names",)
    class_names: list[str]

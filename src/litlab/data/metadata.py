"""What is known of the data: asked for by models and callbacks, and carried by a checkpoint to serve raw files."""

from dataclasses import dataclass, fields
from typing import Any

from litlab.errors import UserError


@dataclass(frozen=True)
class Metadata:
    """What is known of a data set; each kind of data has its own subclass."""

    def state_dict(self) -> dict[str, Any]:
        """Return the record as a checkpoint keeps it: plain values and tensors by their names."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def check_same(self, here: Any) -> None:
        """Refuse data that a model with this metadata was not trained for.

        Args:
            here: The `Metadata` of the data.

        Raises:
            UserError: They differ in what the model depends on.
        """


@dataclass(frozen=True)
class ClassMetadata(Metadata):
    """Metadata of samples with one class each.

    Args:
        class_names: Name of each class, in the order of the labels.
    """

    class_names: list[str]

    def check_same(self, here: Any) -> None:
        """Refuse data of other classes.

        Raises:
            UserError: The classes, or their order, differ.
        """
        if self.class_names != here.class_names:
            old, new = (
                f"{len(names)} classes ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
                for names in (self.class_names, here.class_names)
            )
            raise UserError(
                f"data: the checkpoint was trained on {old}, the data has {new}; use data of the same classes"
            )
